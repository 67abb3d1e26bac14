/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Opening files, by name and by handle, with a state (NFSv4, NLM) and without (NFSv3
 * CREATE).
 *
 * The daemon needs no open file for reading and writing.  An opening with a state is
 * counted (opens.c), so that the file lives while it is in use; one without a state
 * leaves no trace.
 *
 * Owns the states (struct tombolo_fsal_state) and object->stateless_opens.  Reservations are
 * reservations.c's, creating a file is create.c's.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "call.h"
#include "create.h"
#include "entry.h"
#include "errors.h"
#include "handle.h"
#include "open.h"
#include "opens.h"
#include "operations.h"
#include "permission.h"
#include "reservations.h"

/* A name that comes and goes as often as this is left to the client's next attempt. */
#define CREATION_ATTEMPTS 8

/* ---- states ---- */

struct state_t *tombolo_fsal_alloc_state(struct fsal_export *export, enum state_type type, struct state_t *related)
{
	struct tombolo_fsal_state *state = gsh_calloc(1, sizeof(*state));

	state->openflags = FSAL_O_CLOSED;
	return init_state(&state->state, export, type, related);
}

void tombolo_fsal_free_state(struct fsal_export *export, struct state_t *state)
{
	(void)export;
	gsh_free(tombolo_fsal_state_of(state));
}

/* Takes the reservation and counts the opening, or neither. */
static fsal_status_t open_state(struct fsal_obj_handle *object, struct tombolo_fsal_state *state,
				fsal_openflags_t openflags)
{
	fsal_openflags_t before = state->openflags;
	fsal_status_t status = tombolo_fsal_try_reserve(object, before, openflags);

	if (FSAL_IS_ERROR(status))
		return status;
	if (!state->is_open)
		status = tombolo_fsal_opens_add(tombolo_fsal_current_export(), object->fileid);
	if (FSAL_IS_ERROR(status)) {
		tombolo_fsal_reserve(object, openflags, before);
		return status;
	}
	state->is_open = true;
	state->openflags = FSAL_O_NFS_FLAGS(openflags);
	return status;
}

static void close_state(struct fsal_obj_handle *object, struct tombolo_fsal_state *state)
{
	if (tombolo_fsal_holds_reservation(&state->state))
		tombolo_fsal_reserve(object, state->openflags, FSAL_O_CLOSED);
	state->openflags = FSAL_O_CLOSED;
	if (state->is_open)
		tombolo_fsal_opens_remove(tombolo_fsal_current_export(), object->fileid);
	state->is_open = false;
}

static fsal_status_t close2(struct fsal_obj_handle *object, struct state_t *state)
{
	close_state(object, tombolo_fsal_state_of(state));
	return tombolo_fsal_success();
}

static fsal_openflags_t status2(struct fsal_obj_handle *object, struct state_t *state)
{
	(void)object;
	return tombolo_fsal_state_of(state)->openflags;
}

/* Nothing is kept open for openings without a state.  Ganesha counts them, though, and
 * takes one off its count for each success here. */
static fsal_status_t close_stateless(struct fsal_obj_handle *object)
{
	int32_t *opens = &tombolo_fsal_object_of(object)->stateless_opens;

	if (atomic_dec_int32_t(opens) >= 0)
		return tombolo_fsal_success();
	(void)atomic_inc_int32_t(opens);
	return fsalstat(ERR_FSAL_NOT_OPENED, 0);
}

/* ---- an object that is there ---- */

static fsal_status_t truncate_object(struct fsal_obj_handle *object, struct fuse_attr *attributes)
{
	struct fsal_attrlist wanted = { .valid_mask = ATTR_SIZE, .filesize = 0 };

	return tombolo_fsal_set_attributes(tombolo_fsal_current_export(), object->fileid, object->type, &wanted,
					   attributes);
}

/* What an opening does apart from its state. */
static fsal_status_t truncate_if_asked(struct fsal_obj_handle *object, fsal_openflags_t openflags, bool checked,
				       struct fuse_attr *attributes)
{
	fsal_status_t status = tombolo_fsal_success();

	if (!(openflags & FSAL_O_TRUNC))
		return status;
	/* By the time that ganesha checks, the data would be gone. */
	if (!checked || !(openflags & FSAL_O_WRITE))
		status = tombolo_fsal_may_access(object, FSAL_WRITE_ACCESS);
	return FSAL_IS_SUCCESS(status) ? truncate_object(object, attributes) : status;
}

/* `checked`: ganesha has checked access according to `openflags`. */
static fsal_status_t open_object(struct fsal_obj_handle *object, struct state_t *state, fsal_openflags_t openflags,
				 bool checked, struct fuse_attr *attributes)
{
	fsal_status_t status;

	if (state)
		status = open_state(object, tombolo_fsal_state_of(state), openflags);
	else
		status = tombolo_fsal_share_check(object, NULL, openflags, false);
	if (FSAL_IS_ERROR(status))
		return status;
	status = truncate_if_asked(object, openflags, checked, attributes);
	if (FSAL_IS_ERROR(status) && state)
		close_state(object, tombolo_fsal_state_of(state));
	return status;
}

/* The verifier of an exclusive creation is in the times, as set_common_verifier() puts it there. */
static bool verifier_matches(const struct fuse_attr *attributes, fsal_verifier_t verifier)
{
	uint32_t high, low;

	memcpy(&high, verifier, sizeof(high));
	memcpy(&low, verifier + sizeof(high), sizeof(low));
	return attributes->atime == high && attributes->mtime == low;
}

static fsal_status_t check_exclusive(enum fsal_create_mode mode, fsal_verifier_t verifier,
				     const struct fuse_attr *attributes)
{
	switch (mode) {
	case FSAL_NO_CREATE:
	case FSAL_UNCHECKED:
		return tombolo_fsal_success();
	case FSAL_EXCLUSIVE:
	case FSAL_EXCLUSIVE_41:
		/* The same creation, asked for again because its answer was lost. */
		if (verifier_matches(attributes, verifier))
			return tombolo_fsal_success();
		break;
	case FSAL_GUARDED:
	case FSAL_EXCLUSIVE_9P:
		break;
	}
	return fsalstat(ERR_FSAL_EXIST, EEXIST);
}

static fsal_status_t open_by_handle(struct fsal_obj_handle *object, struct state_t *state, fsal_openflags_t openflags,
				    enum fsal_create_mode mode, fsal_verifier_t verifier,
				    struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_attr attributes;
	fsal_status_t status = tombolo_fsal_fetch_attributes(export, object->fileid, &attributes);

	if (FSAL_IS_SUCCESS(status) && mode != FSAL_GUARDED && mode != FSAL_EXCLUSIVE_9P)
		status = check_exclusive(mode, verifier, &attributes);
	if (FSAL_IS_SUCCESS(status))
		status = open_object(object, state, openflags, true, &attributes);
	if (FSAL_IS_SUCCESS(status) && attributes_out)
		tombolo_fsal_attributes_fill(export, &attributes, attributes_out);
	return status;
}

/* ---- by name ---- */

struct opening {
	struct tombolo_fsal_export *export;
	struct fsal_obj_handle *directory;
	const char *name;
	struct state_t *state;
	fsal_openflags_t openflags;
	enum fsal_create_mode mode;
	struct fsal_attrlist *wanted;
	char *verifier;
	struct fsal_obj_handle **new_object;
	struct fsal_attrlist *attributes_out;
	bool *caller_perm_check;
};

static fsal_status_t type_check(uint32_t mode)
{
	if (S_ISREG(mode))
		return tombolo_fsal_success();
	return S_ISDIR(mode) ? fsalstat(ERR_FSAL_ISDIR, EISDIR) : fsalstat(ERR_FSAL_SYMLINK, ELOOP);
}

static fsal_status_t open_entry(const struct opening *opening, struct fuse_entry_out *entry)
{
	uint64_t inode = tombolo_fsal_inode_of(opening->export, entry->nodeid);
	struct fsal_obj_handle *object;
	fsal_status_t status = type_check(entry->attr.mode);

	/* A name that is taken by anything is taken. */
	if (opening->mode == FSAL_GUARDED || FSAL_IS_SUCCESS(status))
		status = check_exclusive(opening->mode, opening->verifier, &entry->attr);
	if (FSAL_IS_ERROR(status))
		return status;
	object = &tombolo_fsal_object_new(opening->export, inode, entry->attr.mode)->object;
	status = open_object(object, opening->state, opening->openflags, false, &entry->attr);
	if (FSAL_IS_SUCCESS(status) && opening->attributes_out)
		tombolo_fsal_attributes_fill(opening->export, &entry->attr, opening->attributes_out);
	if (FSAL_IS_ERROR(status)) {
		object->obj_ops->release(object);
		return status;
	}
	*opening->new_object = object;
	*opening->caller_perm_check = true;
	return status;
}

static fsal_status_t open_existing(const struct opening *opening)
{
	struct fuse_entry_out entry;
	fsal_status_t status =
		tombolo_fsal_lookup_entry(opening->export, opening->directory->fileid, opening->name, &entry);

	return FSAL_IS_SUCCESS(status) ? open_entry(opening, &entry) : status;
}

static fsal_status_t create(const struct opening *opening)
{
	struct tombolo_fsal_creation creation = {
		.export = opening->export,
		.directory = opening->directory->fileid,
		.name = opening->name,
		.wanted = opening->wanted,
	};
	uint64_t inode;
	fsal_status_t status = tombolo_fsal_create_file(&creation, opening->state != NULL);

	if (FSAL_IS_ERROR(status))
		return status;
	inode = tombolo_fsal_inode_of(opening->export, creation.entry.nodeid);
	if (opening->state)
		tombolo_fsal_opens_add_created(opening->export, inode);
	status = tombolo_fsal_finish_creation(&creation, opening->new_object, opening->attributes_out);
	if (FSAL_IS_ERROR(status)) {
		if (opening->state)
			tombolo_fsal_opens_remove(opening->export, inode);
		return status;
	}
	if (opening->state) {
		struct tombolo_fsal_state *state = tombolo_fsal_state_of(opening->state);

		/* Nobody else has this object yet; ganesha merges it if somebody has the file. */
		tombolo_fsal_reserve(*opening->new_object, FSAL_O_CLOSED, opening->openflags);
		state->is_open = true;
		state->openflags = FSAL_O_NFS_FLAGS(opening->openflags);
	}
	*opening->caller_perm_check = false;
	return status;
}

/* A file that exists may be opened by those who may not create it, so a refusal is
 * given only when there is none. */
static fsal_status_t open_or_create(const struct opening *opening)
{
	fsal_status_t allowed = tombolo_fsal_may_create(opening->directory, TOMBOLO_FSAL_ENTRY_FILE);
	fsal_status_t status;

	for (int attempt = 0; attempt < CREATION_ATTEMPTS; attempt++) {
		status = FSAL_IS_SUCCESS(allowed) ? create(opening) : fsalstat(ERR_FSAL_EXIST, EEXIST);
		if (status.major != ERR_FSAL_EXIST)
			return status;
		status = open_existing(opening);
		if (status.major != ERR_FSAL_NOENT)
			return status;
		if (FSAL_IS_ERROR(allowed))
			return allowed;
	}
	return fsalstat(ERR_FSAL_DELAY, 0);
}

static fsal_status_t open_by_name(const struct opening *opening)
{
	fsal_status_t status;

	*opening->new_object = NULL;
	if (opening->directory->type != DIRECTORY)
		return fsalstat(ERR_FSAL_NOTDIR, ENOTDIR);
	status = opening->mode == FSAL_NO_CREATE ? open_existing(opening) : open_or_create(opening);
	if (FSAL_IS_SUCCESS(status) && !opening->state)
		(void)atomic_inc_int32_t(&tombolo_fsal_object_of(*opening->new_object)->stateless_opens);
	return status;
}

static fsal_status_t open2(struct fsal_obj_handle *object, struct state_t *state, fsal_openflags_t openflags,
			   enum fsal_create_mode mode, const char *name, struct fsal_attrlist *wanted,
			   fsal_verifier_t verifier, struct fsal_obj_handle **new_object,
			   struct fsal_attrlist *attributes_out, bool *caller_perm_check)
{
	const struct opening opening = {
		.export = tombolo_fsal_current_export(),
		.directory = object,
		.name = name,
		.state = state,
		.openflags = openflags,
		.mode = mode,
		.wanted = wanted,
		.verifier = verifier,
		.new_object = new_object,
		.attributes_out = attributes_out,
		.caller_perm_check = caller_perm_check,
	};

	if (!name) {
		*caller_perm_check = false;
		return open_by_handle(object, state, openflags, mode, verifier, attributes_out);
	}
	if (mode == FSAL_EXCLUSIVE || mode == FSAL_EXCLUSIVE_41)
		set_common_verifier(wanted, verifier, false);
	return open_by_name(&opening);
}

/* For a state that has the file open already, with other access or another reservation. */
static fsal_status_t reopen2(struct fsal_obj_handle *object, struct state_t *state, fsal_openflags_t openflags)
{
	struct tombolo_fsal_state *self = tombolo_fsal_state_of(state);
	fsal_openflags_t before = self->openflags;
	bool was_open = self->is_open;
	struct fuse_attr attributes;
	fsal_status_t status = open_state(object, self, openflags);

	if (FSAL_IS_ERROR(status))
		return status;
	status = truncate_if_asked(object, openflags, true, &attributes);
	if (FSAL_IS_ERROR(status)) {
		if (was_open) {
			tombolo_fsal_reserve(object, openflags, before);
			self->openflags = before;
		} else {
			close_state(object, self);
		}
	}
	return status;
}

void tombolo_fsal_open_ops_init(struct fsal_obj_ops *ops)
{
	ops->open2 = open2;
	ops->reopen2 = reopen2;
	ops->status2 = status2;
	ops->close2 = close2;
	ops->close = close_stateless;
}
