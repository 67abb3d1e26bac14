/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * FSAL TOMBOLO: nfs-ganesha 4.3 as a door to the shares of a tombolo gateway.
 *
 *   session/      the messages, and sending them, over restarts of the daemon
 *   main.c        the module
 *   export.c      one export: its configuration, its session
 *   call.c        the making of requests
 *   handle.c      objects, and the handles that clients keep
 *   attributes.c  attributes, both ways
 *   recent.c      attributes that came with the answer to a write
 *   acl.c         POSIX ACLs of the service as ACLs of ganesha
 *   permission.c  who may create, remove and rename
 *   entry.c       one name, as the daemon knows it
 *   create.c      creation, with the attributes asked for
 *   directory.c   names: lookup, links, removal, reading directories
 *   reservations.c   share reservations
 *   open.c        opening files
 *   opens.c       which files are open, for the daemon to know
 *   file.c        data
 *   lock.c        byte range locks
 *   xattr.c       extended attributes of RFC 8276
 *   notify.c      changes by others, passed on to ganesha's cache
 *   errors.c      errno as ganesha's errors
 *
 * The FSAL keeps no data and no policy, and attributes only for the questions that follow
 * a write: each operation is one message, or as few as the protocol allows, and the
 * answer is the daemon's.  It has two duties
 * that no other party can take.  It checks permissions where ganesha expects the file
 * system to do so (permission.c), because the daemon does not know a client's groups;
 * and it keeps share reservations, as every FSAL of this version has to.
 *
 * A status begins as a failure, and is success only where an answer said so.
 */

#ifndef TOMBOLO_FSAL_H
#define TOMBOLO_FSAL_H

#include "config.h"

#include <fcntl.h>

#include <fsal.h>
#include <fsal_api.h>
#include <fsal_convert.h>
#include <FSAL/fsal_commonlib.h>
#include <FSAL/fsal_config.h>
#include <FSAL/fsal_init.h>
#include <sal_data.h>

#include "session/session.h"

#define TOMBOLO_FSAL_ATTRIBUTES (ATTRS_POSIX | ATTR_ACL | ATTR4_XATTR)

struct tombolo_fsal_module {
	struct fsal_module module;
	struct fsal_obj_ops object_ops;
	uint64_t incarnation;	/* differs each time ganesha starts */
};

extern struct tombolo_fsal_module tombolo_fsal;

struct tombolo_fsal_opens;
struct tombolo_fsal_notifier;

struct tombolo_fsal_export {
	struct fsal_export export;
	char *socket_path;
	char *share_name;
	char *instance;
	uint32_t connection_count;

	struct tombolo_fsal_session *session;
	uint64_t root;		/* inode of the share's root: part of every handle, so it never changes */
	uint32_t io_bytes_max;	/* of one read or write */
	bool has_acl_flags;	/* attributes tell whether there are ACLs */
	bool has_write_attributes;	/* answers to writes bring attributes, if asked for */
	bool has_creation_attributes;	/* creations may bring attributes */
	uint64_t changes;	/* atomic; see recent.c */
	struct tombolo_fsal_opens *opens;
	struct tombolo_fsal_notifier *notifier;
};

/* The handle that clients keep, little endian, and the key under which ganesha caches the object. */
struct tombolo_fsal_handle {
	uint8_t magic;		/* TOMBOLO_FSAL_HANDLE_MAGIC */
	uint8_t version;	/* TOMBOLO_FSAL_HANDLE_VERSION */
	uint8_t reserved[6];	/* 0 */
	uint64_t root;		/* of which share */
	uint64_t inode;		/* numbers are never used again, so no generation is needed */
};

#define TOMBOLO_FSAL_HANDLE_MAGIC 0x74
#define TOMBOLO_FSAL_HANDLE_VERSION 1

_Static_assert(sizeof(struct tombolo_fsal_handle) == 24, "handles outlive us");

/* See recent.c.  All under `lock`. */
struct tombolo_fsal_recent {
	pthread_mutex_t lock;
	struct fuse_attr attributes;
	uint64_t ctime_seen;	/* the greatest of any answer about this file, in nanoseconds */
	uint64_t changes;	/* of the export, when the write was sent */
	uint64_t since_ns;
	bool usable;
};

struct tombolo_fsal_object {
	struct fsal_obj_handle object;
	struct tombolo_fsal_handle handle;
	struct fsal_share share;	/* under object.obj_lock */
	int stateless_opens;	/* opens by name without a state that ganesha will close; atomic */
	struct tombolo_fsal_recent recent;
};

struct tombolo_fsal_state {
	struct state_t state;	/* first: ganesha knows only this */
	fsal_openflags_t openflags;
	bool is_open;		/* counted in export->opens */
};

static inline struct tombolo_fsal_object *tombolo_fsal_object_of(struct fsal_obj_handle *object)
{
	return container_of(object, struct tombolo_fsal_object, object);
}

static inline struct tombolo_fsal_export *tombolo_fsal_export_of(struct fsal_export *export)
{
	return container_of(export, struct tombolo_fsal_export, export);
}

/* The export of the operation under way. */
static inline struct tombolo_fsal_export *tombolo_fsal_current_export(void)
{
	return tombolo_fsal_export_of(op_ctx->fsal_export);
}

static inline struct tombolo_fsal_state *tombolo_fsal_state_of(struct state_t *state)
{
	return container_of(state, struct tombolo_fsal_state, state);
}

static inline fsal_status_t tombolo_fsal_success(void)
{
	return fsalstat(ERR_FSAL_NO_ERROR, 0);
}

/* ---- errors.c ---- */

/* The daemon's errno as a status; 0 is success. */
fsal_status_t tombolo_fsal_status(int error);
/* For an answer that is too short or contradicts itself; logged. */
fsal_status_t tombolo_fsal_bad_answer(uint32_t opcode);

/* ---- call.c ---- */

/* Prepares a request of the caller of the operation under way. */
void tombolo_fsal_request_init(struct tombolo_fsal_request *request, const struct tombolo_fsal_export *export,
			       uint32_t opcode, uint64_t inode);
/* Makes the call; the answer must have exactly `bytes`. */
fsal_status_t tombolo_fsal_ask(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request, void *answer,
			       size_t bytes);
/* Makes the call; the answer may have up to *bytes, and *bytes says how many it has. */
fsal_status_t tombolo_fsal_ask_up_to(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
				     void *answer, size_t *bytes);
/* Makes the call for an answer without content. */
fsal_status_t tombolo_fsal_tell(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request);

/* ---- handle.c ---- */

struct tombolo_fsal_object *tombolo_fsal_object_new(struct tombolo_fsal_export *export, uint64_t inode, uint32_t mode);
void tombolo_fsal_handle_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_handle_export_ops_init(struct export_ops *ops);
/* Tells ganesha's cache to trust nothing of this inode.  See FSAL_UP_INVALIDATE_*. */
void tombolo_fsal_invalidate(struct tombolo_fsal_export *export, uint64_t inode, uint32_t flags);
/* The same for all objects of the export. */
void tombolo_fsal_invalidate_all(struct tombolo_fsal_export *export);

/* ---- export.c ---- */

fsal_status_t tombolo_fsal_create_export(struct fsal_module *module, void *parse_node,
					 struct config_error_type *error_type, const struct fsal_up_vector *up_ops);

/* ---- attributes.c ---- */

/* The inode's number in the service's terms: the root has its own besides FUSE_ROOT_ID. */
uint64_t tombolo_fsal_inode_of(const struct tombolo_fsal_export *export, uint64_t nodeid);
/* Whether the daemon describes an object that can be; else it is not to be believed. */
bool tombolo_fsal_attributes_valid(const struct fuse_attr *attributes);
/* Converts all but an ACL that would have to be fetched. */
void tombolo_fsal_attributes_fill(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes,
				  struct fsal_attrlist *list);
/* Fills what the operation under way asked for, the ACL as well.  With no `list` nothing happens. */
fsal_status_t tombolo_fsal_attributes_give(struct tombolo_fsal_export *export, uint64_t inode,
					   const struct fuse_attr *attributes, struct fsal_attrlist *list);
fsal_status_t tombolo_fsal_fetch_attributes(struct tombolo_fsal_export *export, uint64_t inode,
					    struct fuse_attr *attributes);
/* Encodes what is in the list's valid mask, but for an ACL. */
fsal_status_t tombolo_fsal_attributes_encode(const struct fsal_attrlist *list, object_file_type_t type,
					     struct fuse_setattr_in *change);
/* Sets what is in the list's valid mask.  Afterwards `attributes` are the object's. */
fsal_status_t tombolo_fsal_set_attributes(struct tombolo_fsal_export *export, uint64_t inode, object_file_type_t type,
					  struct fsal_attrlist *list, struct fuse_attr *attributes);
void tombolo_fsal_attributes_ops_init(struct fsal_obj_ops *ops);

/* ---- recent.c ---- */

/* Something was changed, or may have been, and its attributes were not told. */
void tombolo_fsal_changes_count(struct tombolo_fsal_export *export);
uint64_t tombolo_fsal_changes_counted(struct tombolo_fsal_export *export);
/* Whether requests of this kind are to be counted, when they are answered. */
bool tombolo_fsal_changes_silently(uint32_t opcode);
/* The attributes were asked for. */
void tombolo_fsal_recent_seen(struct tombolo_fsal_object *object, const struct fuse_attr *attributes);
/* The attributes came with a write that was sent when the export had counted `changes`. */
void tombolo_fsal_recent_keep(struct tombolo_fsal_object *object, const struct fuse_attr *attributes,
			      uint64_t changes);
/* Gives what was kept, if it still holds. */
bool tombolo_fsal_recent_find(struct tombolo_fsal_export *export, struct tombolo_fsal_object *object,
			      struct fuse_attr *attributes);

/* ---- acl.c ---- */

/* Whether it is known that the mode says it all. */
bool tombolo_fsal_acl_is_mode(const struct tombolo_fsal_export *export, const struct fuse_attr *attributes);
/* Fills list->acl with what the mode amounts to, whether asked for or not. */
void tombolo_fsal_acl_give_mode(const struct fuse_attr *attributes, struct fsal_attrlist *list);
/* Fetches the ACL and fills list->acl. */
fsal_status_t tombolo_fsal_acl_get(struct tombolo_fsal_export *export, uint64_t inode,
				   const struct fuse_attr *attributes, struct fsal_attrlist *list);
fsal_status_t tombolo_fsal_acl_set(struct tombolo_fsal_export *export, uint64_t inode, bool is_directory,
				   fsal_acl_t *acl);

/* ---- permission.c ---- */

enum tombolo_fsal_entry_kind { TOMBOLO_FSAL_ENTRY_FILE, TOMBOLO_FSAL_ENTRY_DIRECTORY };

fsal_status_t tombolo_fsal_may_create(struct fsal_obj_handle *directory, enum tombolo_fsal_entry_kind kind);
fsal_status_t tombolo_fsal_may_remove(struct fsal_obj_handle *directory, struct fsal_obj_handle *object);
fsal_status_t tombolo_fsal_may_rename(struct fsal_obj_handle *object, struct fsal_obj_handle *old_directory,
				      struct fsal_obj_handle *new_directory, const char *new_name);
fsal_status_t tombolo_fsal_may_access(struct fsal_obj_handle *object, fsal_accessflags_t access);

/* ---- entry.c ---- */

fsal_status_t tombolo_fsal_lookup_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					struct fuse_entry_out *entry);
/* An answer that names an object, checked. */
fsal_status_t tombolo_fsal_entry_check(uint32_t opcode, const struct fuse_entry_out *entry);
/* Makes a call that is answered with an object, and checks it. */
fsal_status_t tombolo_fsal_ask_for_entry(struct tombolo_fsal_export *export, struct tombolo_fsal_request *request,
					 struct fuse_entry_out *entry);
/* UNLINK, or RMDIR of a directory. */
fsal_status_t tombolo_fsal_remove_entry(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					bool is_directory);

/* ---- create.c ---- */

/* Sets what creation could not, which is `left`, and builds the object.  On failure the name is removed again. */
fsal_status_t tombolo_fsal_finish_creation(struct tombolo_fsal_export *export, uint64_t directory, const char *name,
					   struct fuse_entry_out *entry, struct fsal_attrlist *wanted, attrmask_t left,
					   struct fsal_obj_handle **new_object, struct fsal_attrlist *attributes_out);
/* What is left when creation brought the mode alone. */
attrmask_t tombolo_fsal_attributes_left(const struct fsal_attrlist *wanted);
void tombolo_fsal_create_ops_init(struct fsal_obj_ops *ops);

/* ---- directory.c ---- */

void tombolo_fsal_directory_ops_init(struct fsal_obj_ops *ops);

/* ---- reservations.c ---- */

/* Whether share reservations let the holder of `state`, or anybody if NULL, do this. */
fsal_status_t tombolo_fsal_share_check(struct fsal_obj_handle *object, struct state_t *state,
				       fsal_openflags_t openflags, bool bypass);
/* Whether a state of this kind denies anything to others. */
bool tombolo_fsal_holds_reservation(const struct state_t *state);
/* Takes the place of `from` whatever others deny. */
void tombolo_fsal_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to);
/* The same, if nobody denies it; ERR_FSAL_SHARE_DENIED. */
fsal_status_t tombolo_fsal_try_reserve(struct fsal_obj_handle *object, fsal_openflags_t from, fsal_openflags_t to);

/* ---- open.c ---- */

void tombolo_fsal_open_ops_init(struct fsal_obj_ops *ops);
struct state_t *tombolo_fsal_alloc_state(struct fsal_export *export, enum state_type type, struct state_t *related);
void tombolo_fsal_free_state(struct fsal_export *export, struct state_t *state);
/* ---- opens.c ---- */

struct tombolo_fsal_opens *tombolo_fsal_opens_new(void);
void tombolo_fsal_opens_free(struct tombolo_fsal_opens *opens);
fsal_status_t tombolo_fsal_opens_add(struct tombolo_fsal_export *export, uint64_t inode);
/* Counts one that the daemon counted by itself, on creation. */
void tombolo_fsal_opens_add_created(struct tombolo_fsal_export *export, uint64_t inode);
void tombolo_fsal_opens_remove(struct tombolo_fsal_export *export, uint64_t inode);
/* Tells a daemon that has started anew. */
void tombolo_fsal_opens_repeat(struct tombolo_fsal_export *export);

/* ---- file.c, lock.c, xattr.c ---- */

void tombolo_fsal_file_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_lock_ops_init(struct fsal_obj_ops *ops);
void tombolo_fsal_xattr_ops_init(struct fsal_obj_ops *ops);

/* ---- notify.c ---- */

struct tombolo_fsal_notifier *tombolo_fsal_notifier_new(struct tombolo_fsal_export *export);
/* Nothing is passed on before this.  Returns 0 or an errno. */
int tombolo_fsal_notifier_start(struct tombolo_fsal_notifier *notifier);
/* Ends the thread; what is heard after this is forgotten. */
void tombolo_fsal_notifier_stop(struct tombolo_fsal_notifier *notifier);
void tombolo_fsal_notifier_free(struct tombolo_fsal_notifier *notifier);
/* For the session's threads. */
void tombolo_fsal_notified(void *notifier, const struct tombolo_wire_notification *notification);
void tombolo_fsal_resumed(void *notifier, bool rebooted);

#endif
