/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Changes that others made, for ganesha's cache to forget what it knew.
 *
 * The session's threads may not wait, and the cache may make them; so they only queue
 * what they heard, and a thread of the notifier passes it on.  When more is queued
 * than is worth keeping, or when something may have been missed while the daemon was
 * away, the whole export is forgotten instead.
 *
 * Owns the queue and the thread.  How ganesha's cache is told is handle.c's.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "handle.h"
#include "notify.h"
#include "opens.h"

#define QUEUE_MAX 16384u

struct tombolo_fsal_notifier {
	struct tombolo_fsal_export *export;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct tombolo_wire_notification *queue;	/* a ring of QUEUE_MAX */
	unsigned int first, count;
	bool forget_all;	/* instead of the queue */
	bool repeat_opens;
	bool stopping;
};

struct work {
	struct tombolo_wire_notification notification;
	bool has_notification, forget_all, repeat_opens;
};

struct tombolo_fsal_notifier *tombolo_fsal_notifier_new(struct tombolo_fsal_export *export)
{
	struct tombolo_fsal_notifier *notifier = gsh_calloc(1, sizeof(*notifier));

	notifier->export = export;
	notifier->queue = gsh_calloc(QUEUE_MAX, sizeof(*notifier->queue));
	PTHREAD_MUTEX_init(&notifier->lock, NULL);
	PTHREAD_COND_init(&notifier->changed, NULL);
	return notifier;
}

void tombolo_fsal_notifier_stop(struct tombolo_fsal_notifier *notifier)
{
	PTHREAD_MUTEX_lock(&notifier->lock);
	notifier->stopping = true;
	pthread_cond_broadcast(&notifier->changed);
	PTHREAD_MUTEX_unlock(&notifier->lock);
	if (notifier->started) {
		/* The thread may be waiting for an export that never became ready. */
		up_ready_cancel((struct fsal_up_vector *)notifier->export->export.up_ops);
		pthread_join(notifier->thread, NULL);
	}
	notifier->started = false;
}

void tombolo_fsal_notifier_free(struct tombolo_fsal_notifier *notifier)
{
	PTHREAD_COND_destroy(&notifier->changed);
	PTHREAD_MUTEX_destroy(&notifier->lock);
	gsh_free(notifier->queue);
	gsh_free(notifier);
}

/* ---- queueing ---- */

void tombolo_fsal_notified(void *argument, const struct tombolo_wire_notification *notification)
{
	struct tombolo_fsal_notifier *notifier = argument;

	tombolo_fsal_changes_count(notifier->export);
	PTHREAD_MUTEX_lock(&notifier->lock);
	if (notifier->count == QUEUE_MAX) {
		notifier->forget_all = true;
		notifier->count = 0;
	}
	/* One that comes while everything is to be forgotten may be about what is cached only after that. */
	notifier->queue[(notifier->first + notifier->count) % QUEUE_MAX] = *notification;
	notifier->count++;
	pthread_cond_signal(&notifier->changed);
	PTHREAD_MUTEX_unlock(&notifier->lock);
}

void tombolo_fsal_resumed(void *argument, bool rebooted)
{
	struct tombolo_fsal_notifier *notifier = argument;

	tombolo_fsal_changes_count(notifier->export);
	PTHREAD_MUTEX_lock(&notifier->lock);
	notifier->forget_all = true;
	notifier->count = 0;
	notifier->repeat_opens = notifier->repeat_opens || rebooted;
	pthread_cond_signal(&notifier->changed);
	PTHREAD_MUTEX_unlock(&notifier->lock);
}

/* ---- passing on ---- */

static void pass_on(struct tombolo_fsal_export *export, const struct tombolo_wire_notification *notification)
{
	const uint32_t names = FSAL_UP_INVALIDATE_ATTRS | FSAL_UP_INVALIDATE_CONTENT | FSAL_UP_INVALIDATE_DIR_POPULATED |
			       FSAL_UP_INVALIDATE_DIR_CHUNKS;
	uint64_t inode = tombolo_fsal_inode_of(export, notification->inode);

	switch (notification->kind) {
	case TOMBOLO_WIRE_INODE_CHANGED:
		/* A directory that was moved has another parent. */
		tombolo_fsal_invalidate(export, inode,
					FSAL_UP_INVALIDATE_ATTRS | FSAL_UP_INVALIDATE_ACL | FSAL_UP_INVALIDATE_PARENT |
						(notification->data_changed ? names : 0));
		break;
	case TOMBOLO_WIRE_ENTRY_CHANGED:
		tombolo_fsal_invalidate(export, inode, names);
		break;
	case TOMBOLO_WIRE_ENTRY_REMOVED:
		tombolo_fsal_invalidate(export, inode, names);
		tombolo_fsal_invalidate(export, notification->child, FSAL_UP_INVALIDATE_CACHE);
		break;
	}
}

/* False when the notifier is to stop. */
static bool next_work(struct tombolo_fsal_notifier *notifier, struct work *work)
{
	bool stopping;

	memset(work, 0, sizeof(*work));
	PTHREAD_MUTEX_lock(&notifier->lock);
	while (!notifier->stopping && !notifier->forget_all && !notifier->repeat_opens && notifier->count == 0)
		pthread_cond_wait(&notifier->changed, &notifier->lock);
	stopping = notifier->stopping;
	work->forget_all = notifier->forget_all;
	work->repeat_opens = notifier->repeat_opens;
	notifier->forget_all = false;
	notifier->repeat_opens = false;
	if (!work->forget_all && !work->repeat_opens && notifier->count > 0) {
		work->has_notification = true;
		work->notification = notifier->queue[notifier->first];
		notifier->first = (notifier->first + 1) % QUEUE_MAX;
		notifier->count--;
	}
	PTHREAD_MUTEX_unlock(&notifier->lock);
	return !stopping;
}

static void *run(void *argument)
{
	struct tombolo_fsal_notifier *notifier = argument;
	struct tombolo_fsal_export *export = notifier->export;
	struct work work;

	SetNameFunction("tombolo_notify");
	up_ready_wait((struct fsal_up_vector *)export->export.up_ops);
	while (next_work(notifier, &work)) {
		/* First: files that are in use must not be lost. */
		if (work.repeat_opens)
			tombolo_fsal_opens_repeat(export);
		if (work.forget_all)
			tombolo_fsal_invalidate_all(export);
		if (work.has_notification)
			pass_on(export, &work.notification);
	}
	return NULL;
}

int tombolo_fsal_notifier_start(struct tombolo_fsal_notifier *notifier)
{
	int error = pthread_create(&notifier->thread, NULL, run, notifier);

	notifier->started = error == 0;
	return error;
}
