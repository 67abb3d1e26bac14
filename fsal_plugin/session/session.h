/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A session with the file service: a few connections to one socket, on which many
 * threads have requests under way at once.  This is its face; how it works is in
 * internal.h, the shape of the messages in wire.h.
 *
 * A request that was accepted is answered, however often the daemon goes away in
 * between: after reconnecting, everything unanswered is sent again, marked, and
 * the daemon finds out whether it was done already.  Only a session that is being
 * closed fails requests by itself.
 *
 * May be used by many threads at once, from opening to closing.  Errors are errno
 * values, positive; 0 is success.  Knows nothing of ganesha.
 */

#ifndef TOMBOLO_FSAL_SESSION_H
#define TOMBOLO_FSAL_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire.h"

#define TOMBOLO_FSAL_CONNECTIONS_MAX 64u

/* Buffers of one message, apart from its header. */
#define TOMBOLO_FSAL_BODY_PARTS_MAX 18

struct tombolo_fsal_session;
struct tombolo_fsal_connection;
struct tombolo_fsal_waiter;

/* Owned by the caller until `done`; all buffers as well. */
struct tombolo_fsal_request {
	struct fuse_in_header header;	/* opcode, nodeid, uid, gid, pid are the caller's */
	struct iovec body[TOMBOLO_FSAL_BODY_PARTS_MAX];
	unsigned int body_count;
	const struct iovec *reply;	/* where the answer's body goes */
	unsigned int reply_count;
	/* Called when no thread waits for the answer; must not wait for another request. */
	void (*done)(struct tombolo_fsal_request *request);

	size_t reply_bytes;	/* result: of the answer's body */
	int error;		/* result: 0 or an errno */

	/* The session's. */
	struct tombolo_fsal_connection *connection;
	bool resend;		/* not yet sent on the present socket of `connection` */
	struct tombolo_fsal_waiter *waiter;	/* the thread that waits; NULL: unattended */
	struct tombolo_fsal_request *next_finished;
};

/* Called from the reader threads; must not make requests.  `log` may be called from any. */
struct tombolo_fsal_session_events {
	void *context;
	void (*notified)(void *context, const struct tombolo_wire_notification *notification);
	/* Back after having been away: notifications may have been missed.  `rebooted`: the
	 * daemon has started anew since, and knows of no open files. */
	void (*resumed)(void *context, bool rebooted);
	void (*log)(void *context, const char *text);
};

/* Starts connecting and waits up to `wait_ms`, in whole seconds, for the daemon.  `connection_count` is 1 to
 * TOMBOLO_FSAL_CONNECTIONS_MAX; `incarnation` differs each time the client starts.  Names and events are copied.
 *
 * ENOENT: the daemon has no such share.  EBUSY: a living client has this name.  EINVAL: a name or the count is out of
 * range.  ENOMEM.  ETIMEDOUT: nobody answered.  Any other: why the daemon refused last. */
int tombolo_fsal_session_open(struct tombolo_fsal_session **session, const char *socket_path, const char *share_name,
			      const char *client_name, uint64_t incarnation, unsigned int connection_count,
			      unsigned int wait_ms, const struct tombolo_fsal_session_events *events);
/* From now on requests fail with ESHUTDOWN when the daemon is away. */
void tombolo_fsal_session_drain(struct tombolo_fsal_session *session);
/* Ends the threads and frees the session; the caller has no request under way.  Drains first. */
void tombolo_fsal_session_close(struct tombolo_fsal_session *session);

/* What the daemon said last. */
struct tombolo_wire_attached tombolo_fsal_session_attached(struct tombolo_fsal_session *session);

/* Appends a buffer to the message, which is not copied: it stays until the answer.  Up to
 * TOMBOLO_FSAL_BODY_PARTS_MAX of them. */
void tombolo_fsal_request_add(struct tombolo_fsal_request *request, const void *data, size_t bytes);
/* Sends and waits; `done` is not called.  Returns request->error: 0, the daemon's errno, ESTALE if the share is gone,
 * ESHUTDOWN if the session drains and the daemon is away, or EIO for an answer that has no room in `reply`. */
int tombolo_fsal_session_call(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request);
/* Sends and waits for up to `wait_ms`.  True: the request is answered, with request->error as above, and `done` is not
 * called.  False: `done` is or was called, once, and the request must not be touched here any more. */
bool tombolo_fsal_session_call_briefly(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
				       unsigned int wait_ms);

#endif
