/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Attributes that came with the answer to a write, kept for the question that ganesha asks next, and the count of
 * changes that tells whether they still hold.
 */

#ifndef TOMBOLO_FSAL_RECENT_H
#define TOMBOLO_FSAL_RECENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/fuse.h>

struct tombolo_fsal_export;
struct tombolo_fsal_object;

/* Of one object.  All under `lock`. */
struct tombolo_fsal_recent {
	pthread_mutex_t lock;
	struct fuse_attr attributes;
	uint64_t ctime_seen;	/* the greatest of any answer about this file, in nanoseconds */
	uint64_t changes;	/* of the export, when the write was sent */
	uint64_t since_ns;
	bool usable;
};

/* Something was changed, or may have been, and its attributes did not come with the answer. */
void tombolo_fsal_changes_count(struct tombolo_fsal_export *export);
/* How many there were since the export began. */
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

#endif
