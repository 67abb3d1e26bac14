/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Attributes that came with the answer to a write.
 *
 * Ganesha asks for a file's attributes after each write and each commit, because it has to tell
 * the client.  The daemon sends them with its answer, so that this need not be another message.
 *
 * They are used only if they are what the daemon would answer now, as far as
 * ganesha can know:
 *
 * - No answer has told of a later state of the file.  Each change makes the ctime greater, so
 *   the greatest that was seen says what is later, in whatever order answers come.
 * - Since the write was sent, nothing has happened that might have changed the file without its
 *   attributes being told: no other change through this export, no notification.  For these the
 *   export has a counter; the write remembers what it was.
 * - They are not older than ganesha lets attributes become.
 *
 * Owns object->recent, with a lock of its own, and export->changes.
 */

#include "fsal_tombolo.h"

/* As Attr_Expiration_Time in the exports of shares. */
#define AGE_NS_MAX 1000000000ull

static uint64_t ctime_of(const struct fuse_attr *attributes)
{
	return attributes->ctime * 1000000000ull + attributes->ctimensec;
}

static uint64_t clock_ns(void)
{
	struct timespec current;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &current);
	return (uint64_t)timespec_to_nsecs(&current);
}

void tombolo_fsal_changes_count(struct tombolo_fsal_export *export)
{
	(void)atomic_inc_uint64_t(&export->changes);
}

uint64_t tombolo_fsal_changes_counted(struct tombolo_fsal_export *export)
{
	return atomic_fetch_uint64_t(&export->changes);
}

bool tombolo_fsal_changes_silently(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_SETATTR:
	case FUSE_LINK:
	case FUSE_UNLINK:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_CREATE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return true;
	default:
		return false;
	}
}

/* The lock is held.  False: a later state has been seen. */
static bool note_seen(struct tombolo_fsal_recent *recent, const struct fuse_attr *attributes)
{
	if (ctime_of(attributes) < recent->ctime_seen)
		return false;
	recent->ctime_seen = ctime_of(attributes);
	return true;
}

void tombolo_fsal_recent_seen(struct tombolo_fsal_object *object, const struct fuse_attr *attributes)
{
	struct tombolo_fsal_recent *recent = &object->recent;

	PTHREAD_MUTEX_lock(&recent->lock);
	if (note_seen(recent, attributes))
		recent->usable = false;
	PTHREAD_MUTEX_unlock(&recent->lock);
}

void tombolo_fsal_recent_keep(struct tombolo_fsal_object *object, const struct fuse_attr *attributes, uint64_t changes)
{
	struct tombolo_fsal_recent *recent = &object->recent;

	PTHREAD_MUTEX_lock(&recent->lock);
	if (note_seen(recent, attributes)) {
		recent->attributes = *attributes;
		recent->changes = changes;
		recent->since_ns = clock_ns();
		recent->usable = true;
	}
	PTHREAD_MUTEX_unlock(&recent->lock);
}

bool tombolo_fsal_recent_find(struct tombolo_fsal_export *export, struct tombolo_fsal_object *object,
			      struct fuse_attr *attributes)
{
	struct tombolo_fsal_recent *recent = &object->recent;
	bool found;

	PTHREAD_MUTEX_lock(&recent->lock);
	found = recent->usable && recent->changes == tombolo_fsal_changes_counted(export) &&
		clock_ns() - recent->since_ns < AGE_NS_MAX;
	if (found)
		*attributes = recent->attributes;
	PTHREAD_MUTEX_unlock(&recent->lock);
	return found;
}
