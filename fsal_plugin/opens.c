/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Which files are open.  The daemon keeps the data of a removed file for as long as a
 * session has it open, so it is told of the first opening and of the last closing of
 * each inode; whatever clients do in between is ganesha's affair.  A daemon that has
 * started anew is told again.
 *
 * Owns export->opens.  A stripe's lock is held across the message, so that one inode's
 * messages keep their order.  Answers need no lock of this file.
 */

#include "fsal_tombolo.h"
#include "call.h"
#include "errors.h"
#include "opens.h"

#define STRIPES 256u

struct open_file {
	struct open_file *next;
	uint64_t inode;
	uint32_t count;	/* never 0 */
};

struct tombolo_fsal_opens {
	struct stripe {
		pthread_mutex_t lock;
		struct open_file *files;
	} stripes[STRIPES];
};

struct tombolo_fsal_opens *tombolo_fsal_opens_new(void)
{
	struct tombolo_fsal_opens *opens = gsh_calloc(1, sizeof(*opens));

	for (unsigned int i = 0; i < STRIPES; i++)
		PTHREAD_MUTEX_init(&opens->stripes[i].lock, NULL);
	return opens;
}

void tombolo_fsal_opens_free(struct tombolo_fsal_opens *opens)
{
	for (unsigned int i = 0; i < STRIPES; i++) {
		struct open_file *next;

		for (struct open_file *file = opens->stripes[i].files; file; file = next) {
			next = file->next;
			gsh_free(file);
		}
		PTHREAD_MUTEX_destroy(&opens->stripes[i].lock);
	}
	gsh_free(opens);
}

static struct stripe *stripe_of(struct tombolo_fsal_export *export, uint64_t inode)
{
	return &export->opens->stripes[inode % STRIPES];
}

/* The link that points to the file's entry, or the NULL at the end. */
static struct open_file **find(struct stripe *stripe, uint64_t inode)
{
	struct open_file **link = &stripe->files;

	while (*link && (*link)->inode != inode)
		link = &(*link)->next;
	return link;
}

static void count_one(struct stripe *stripe, uint64_t inode)
{
	struct open_file **link = find(stripe, inode);

	if (!*link) {
		*link = gsh_calloc(1, sizeof(**link));
		(*link)->inode = inode;
	}
	(*link)->count++;
}

/* The file handle of the answer is not kept: reads and writes do without. */
static fsal_status_t send_open(struct tombolo_fsal_export *export, uint64_t inode)
{
	struct fuse_open_in question = { .flags = O_RDWR };
	struct tombolo_fsal_request request;
	struct fuse_open_out answer;

	tombolo_fsal_request_init(&request, export, FUSE_OPEN, inode);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	return tombolo_fsal_call_exact(export, &request, &answer, sizeof(answer));
}

fsal_status_t tombolo_fsal_opens_add(struct tombolo_fsal_export *export, uint64_t inode)
{
	struct stripe *stripe = stripe_of(export, inode);
	fsal_status_t status = tombolo_fsal_success();

	PTHREAD_MUTEX_lock(&stripe->lock);
	if (!*find(stripe, inode))
		status = send_open(export, inode);
	if (FSAL_IS_SUCCESS(status))
		count_one(stripe, inode);
	PTHREAD_MUTEX_unlock(&stripe->lock);
	return status;
}

void tombolo_fsal_opens_add_created(struct tombolo_fsal_export *export, uint64_t inode)
{
	struct stripe *stripe = stripe_of(export, inode);

	PTHREAD_MUTEX_lock(&stripe->lock);
	count_one(stripe, inode);
	PTHREAD_MUTEX_unlock(&stripe->lock);
}

static void send_release(struct tombolo_fsal_export *export, uint64_t inode)
{
	struct fuse_release_in question = { .flags = O_RDWR };
	struct tombolo_fsal_request request;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_RELEASE, inode);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	status = tombolo_fsal_call_for_status(export, &request);
	/* What the daemon still thinks open ends with the session. */
	if (FSAL_IS_ERROR(status) && status.major != ERR_FSAL_STALE)
		LogWarn(COMPONENT_FSAL, "closing inode %" PRIu64 ": %s", inode, msg_fsal_err(status.major));
}

void tombolo_fsal_opens_remove(struct tombolo_fsal_export *export, uint64_t inode)
{
	struct stripe *stripe = stripe_of(export, inode);
	struct open_file **link, *file;

	PTHREAD_MUTEX_lock(&stripe->lock);
	link = find(stripe, inode);
	file = *link;
	if (file && --file->count == 0) {
		*link = file->next;
		gsh_free(file);
		send_release(export, inode);
	}
	PTHREAD_MUTEX_unlock(&stripe->lock);
}

void tombolo_fsal_opens_repeat(struct tombolo_fsal_export *export)
{
	for (unsigned int i = 0; i < STRIPES; i++) {
		struct stripe *stripe = &export->opens->stripes[i];

		PTHREAD_MUTEX_lock(&stripe->lock);
		for (const struct open_file *file = stripe->files; file; file = file->next) {
			fsal_status_t status = send_open(export, file->inode);

			/* It may have been removed meanwhile; its users will find out. */
			if (FSAL_IS_ERROR(status))
				LogInfo(COMPONENT_FSAL, "opening inode %" PRIu64 " again: %s", file->inode,
					msg_fsal_err(status.major));
		}
		PTHREAD_MUTEX_unlock(&stripe->lock);
	}
}
