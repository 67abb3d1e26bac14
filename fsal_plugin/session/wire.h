/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The messages on the file service's socket: those of <linux/fuse.h>, each with
 * its length in front as the FUSE headers have it, and one of our own that opens
 * a connection, ATTACH.  Integers are in host order, which is little endian.
 *
 * Owns the layout of what <linux/fuse.h> of Debian 12 does not know yet, the
 * building of ATTACH, and every check of what the daemon sends.  Knows no
 * sockets and nothing of ganesha.  No function here trusts a length it was sent.
 */

#ifndef TOMBOLO_FSAL_WIRE_H
#define TOMBOLO_FSAL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/fuse.h>

#define TOMBOLO_WIRE_VERSION 1u
#define TOMBOLO_WIRE_OPCODE_ATTACH 0x54420001u

/* Flags of ATTACH. */
#define TOMBOLO_WIRE_STABLE (1u << 0)	/* changes of metadata are on stable storage when answered */
#define TOMBOLO_WIRE_RESUME (1u << 2)	/* requests from before may be repeated, with TOMBOLO_WIRE_RESENT */
#define TOMBOLO_WIRE_NOTIFY (1u << 3)	/* invalidations are sent on this connection */

/* What the daemon says it can do, in the answer to ATTACH. */
#define TOMBOLO_WIRE_ACL_FLAGS (1u << 0)	/* fuse_attr.flags tells which ACLs there are */
#define TOMBOLO_WIRE_WRITE_ATTRIBUTES (1u << 1)	/* answers to WRITE bring attributes, if asked for */

#define TOMBOLO_WIRE_CREATION_ATTRIBUTES (1u << 2)	/* creations may bring attributes */

/* In fuse_mknod_in.padding and fuse_create_in.open_flags, if TOMBOLO_WIRE_CREATION_ATTRIBUTES was
 * offered: a fuse_setattr_in stands before the name. */
#define TOMBOLO_WIRE_CREATION_WITH_ATTRIBUTES (1u << 31)

/* In fuse_write_in.write_flags, if TOMBOLO_WIRE_WRITE_ATTRIBUTES was offered. */
#define TOMBOLO_WIRE_WRITE_WITH_ATTRIBUTES (1u << 31)

/* In fuse_attr.flags, if TOMBOLO_WIRE_ACL_FLAGS was offered. */
#define TOMBOLO_WIRE_HAS_ACCESS_ACL (1u << 30)
#define TOMBOLO_WIRE_HAS_DEFAULT_ACL (1u << 31)

/* Marks the number of a request that may have been carried out already. */
#define TOMBOLO_WIRE_RESENT (1ull << 63)

/* The protocol version whose messages are spoken, and what of it is relied on. */
#define TOMBOLO_WIRE_FUSE_MINOR 39u
#define TOMBOLO_WIRE_INIT_FLAGS                                                                                     \
	((uint64_t)(FUSE_POSIX_LOCKS | FUSE_ATOMIC_O_TRUNC | FUSE_EXPORT_SUPPORT | FUSE_BIG_WRITES | FUSE_DONT_MASK |  \
		    FUSE_DO_READDIRPLUS | FUSE_POSIX_ACL | FUSE_MAX_PAGES | FUSE_HANDLE_KILLPRIV_V2 |                  \
		    FUSE_SETXATTR_EXT))

/* The number of requests of a session that may be under way.  The daemon remembers
 * the result of a change under (unique / 2) mod this, until the next one there. */
#define TOMBOLO_WIRE_SLOTS 4096u

#define TOMBOLO_WIRE_NAME_BYTES_MAX 255u
#define TOMBOLO_WIRE_CLIENT_NAME_BYTES_MAX 255u

struct tombolo_wire_attach {
	uint32_t version;
	uint32_t flags;
	uint64_t incarnation;	/* differs each time the client starts */
	uint32_t client_name_bytes;
	uint32_t share_name_bytes;
	uint32_t fuse_minor;
	uint32_t reserved;
	uint64_t init_flags;
	/* client name, share name; neither is terminated */
};

struct tombolo_wire_attached {
	uint32_t version;
	uint32_t capabilities;
	uint64_t session;
	uint64_t boot;		/* differs each time the daemon starts */
	uint64_t root;		/* inode of the share's root directory */
	uint32_t write_bytes_max;	/* and of a read */
	uint32_t grace_ms;	/* a session is kept this long without connections */
	uint64_t resumed;	/* 1: the session existed */
};

/* The answer to a WRITE that asked for attributes: what they are after it. */
struct tombolo_wire_written {
	struct fuse_write_out written;
	struct fuse_attr attributes;
};

_Static_assert(sizeof(struct tombolo_wire_written) == 96, "as the daemon has it");
_Static_assert(sizeof(struct tombolo_wire_attach) == 40, "as the daemon has it");
_Static_assert(sizeof(struct tombolo_wire_attached) == 48, "as the daemon has it");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the messages are in host order");

#define TOMBOLO_WIRE_ATTACH_BYTES_MAX                                                                                \
	(sizeof(struct fuse_in_header) + sizeof(struct tombolo_wire_attach) + TOMBOLO_WIRE_CLIENT_NAME_BYTES_MAX +     \
	 TOMBOLO_WIRE_NAME_BYTES_MAX)

/* Writes a whole ATTACH message; returns its length, or 0 if a name is empty or too long. */
size_t tombolo_wire_encode_attach(uint8_t message[TOMBOLO_WIRE_ATTACH_BYTES_MAX], uint32_t flags, uint64_t incarnation,
				  const char *client_name, const char *share_name);

/* Whether the answer is one that a session can be built on. */
bool tombolo_wire_attached_valid(const struct tombolo_wire_attached *attached);

/* Whether `header` can begin a message whose body has at most `body_bytes_max`. */
bool tombolo_wire_reply_valid(const struct fuse_out_header *header, size_t body_bytes_max);

/* Whether a file name is one that the service can know. */
bool tombolo_wire_name_valid(const char *name);

/* One entry of a READDIRPLUS answer.  `name` points into the answer and is not terminated. */
struct tombolo_wire_directory_entry {
	struct fuse_entry_out entry;
	uint64_t cookie;	/* of the position after this entry */
	uint64_t inode;
	const char *name;
	uint32_t name_bytes;	/* 1 to 255 */
};

/* Takes the next entry at *position.  1: taken, 0: that was all, -1: malformed. */
int tombolo_wire_next_entry(const uint8_t *answer, size_t bytes, size_t *position,
			    struct tombolo_wire_directory_entry *entry);

/* What the daemon may say unasked.  Names are not needed and not kept. */
struct tombolo_wire_notification {
	enum { TOMBOLO_WIRE_INODE_CHANGED, TOMBOLO_WIRE_ENTRY_CHANGED, TOMBOLO_WIRE_ENTRY_REMOVED } kind;
	uint64_t inode;		/* the object, or the directory of the entry */
	uint64_t child;		/* ENTRY_REMOVED: what was removed */
	bool data_changed;	/* INODE_CHANGED: more than attributes */
};

/* 1: decoded, 0: a kind that needs no action here, -1: malformed. */
int tombolo_wire_decode_notification(int32_t code, const uint8_t *body, size_t bytes,
				     struct tombolo_wire_notification *notification);

#endif
