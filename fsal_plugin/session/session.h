/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A session with the file service: a few connections to one socket, on which many
 * threads have requests under way at once.
 *
 *   requests.c    numbers requests, sends them, hands over replies
 *   waiting.c     threads that wait for replies, and read them meanwhile
 *   connection.c  one connection: connecting, ATTACH, repeating
 *   receive.c     reading messages from a connection
 *
 * A request that was accepted is answered, however often the daemon goes away in
 * between: after reconnecting, everything unanswered is sent again, marked, and
 * the daemon finds out whether it was done already.  Only a session that is being
 * closed fails requests by itself.
 *
 * Locks, in the order in which they are taken:
 *
 *   connection->send_lock   one message at a time; held while send() blocks
 *   session->lock           everything else; never held across a call that may wait
 *
 * Who reads: one thread at a time has the lead of a connection.  A thread that waits for
 * an answer takes the lead if it is free, reads, hands over what is for others, and
 * gives the lead back with its own answer, to the next that waits.  So an answer comes
 * without waking anybody in between (leader/followers: Schmidt, "Pattern-Oriented
 * Software Architecture" 2).  The connection's own thread, its reader, leads on the way up
 * and down, and while there are requests that no thread waits for.  The connection with
 * index 0 brings notifications at any time: there the reader always leads, and requests go
 * there only if no other connection is up.
 *
 * Rules that follow:
 *
 * - A request enters the table of slots under the send lock of its connection, in
 *   the same critical section in which it is sent.  So whoever holds that lock and
 *   finds it there knows that it was sent on the present socket, or, with `resend`
 *   set, that it was not; and the sender does not touch it after that section.
 * - Whoever leads completes requests; but `done` is called by the reader, because a leading
 *   thread may hold locks of its own that `done` wants.
 * - Whoever leads never waits for a send lock while the socket works: the sender could
 *   be waiting for the daemon to read, and the daemon for the leader.  The reader shuts the
 *   socket down first, which ends every send(); and repeating has a thread of its own.
 * - For each request under way somebody reads: the thread that waits for it, or the reader.
 *
 * Knows nothing of ganesha.
 */

#ifndef TOMBOLO_FSAL_SESSION_H
#define TOMBOLO_FSAL_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "wire.h"

#define TOMBOLO_FSAL_CONNECTIONS_MAX 64u

/* Small answers are received many at a time; large ones go straight to their buffers. */
#define TOMBOLO_FSAL_BUFFER_BYTES 16384u

/* Buffers of one message, apart from its header. */
#define TOMBOLO_FSAL_BODY_PARTS_MAX 18

/* Pause between attempts to reconnect: doubled from the first to the second. */
#define TOMBOLO_FSAL_BACKOFF_MIN_MS 50
#define TOMBOLO_FSAL_BACKOFF_MAX_MS 2000

/* The daemon has this long to answer ATTACH. */
#define TOMBOLO_FSAL_ATTACH_S 10

/* A thread that leads looks this often whether it should still wait. */
#define TOMBOLO_FSAL_LOOK_UP_MS 5

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

/* On the stack of a thread that waits for an answer.  All under session->lock. */
struct tombolo_fsal_waiter {
	pthread_cond_t woken;	/* answered, or the lead may be taken */
	bool answered;
	/* Among those of the connection that are not answered. */
	struct tombolo_fsal_waiter *previous, *next;
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

struct tombolo_fsal_connection {
	struct tombolo_fsal_session *session;
	unsigned int index;	/* the one with 0 takes the notifications */
	pthread_t reader;
	bool reader_started;

	pthread_mutex_t send_lock;
	/* Changed by the reader under both locks; -1: down, or not attached yet. */
	int fd;
	/* The reader's socket from socket() to close(), so that closing can end its waiting. */
	int any_fd;	/* under session->lock */

	/* Under session->lock. */
	bool led;		/* somebody reads */
	bool reader_wants_lead;
	bool ended;		/* the socket, from when a leader finds out until it is up again */
	unsigned int users;	/* threads between choosing this connection and their answer */
	unsigned int unattended;	/* requests here that no thread waits for */
	struct tombolo_fsal_request *finished;	/* those of them that wait for their `done` */
	struct tombolo_fsal_waiter *waiters;
	pthread_cond_t for_reader;	/* the lead is free, or something is finished */
	int wake_fd;		/* an eventfd: the reader is to look whether there is something to do */

	/* The leader's. */
	size_t answer_bytes_max;	/* without the header */
	uint8_t *buffer;	/* bytes received and not yet consumed */
	size_t buffer_begin, buffer_end;

	/* The reader's own. */
	bool failure_logged;
};

struct tombolo_fsal_session {
	struct sockaddr_un address;
	char *share_name;
	char *client_name;
	uint64_t incarnation;
	struct tombolo_fsal_session_events events;

	pthread_mutex_t lock;
	pthread_cond_t changed;	/* a slot became free, an attachment succeeded or was refused, or closing began */
	struct tombolo_fsal_request *slots[TOMBOLO_WIRE_SLOTS];
	unsigned int slot_count;	/* in use or promised */
	uint64_t next_unique;	/* even: the kernel protocol keeps bit 0 for interrupts */
	bool attached_once;
	struct tombolo_wire_attached attached;	/* of the last ATTACH */
	bool gone;		/* the daemon says that there is no such share any more */
	int refusal;		/* errno of the daemon's last refusal, 0 after success */
	bool draining;		/* requests fail rather than wait for the daemon */
	bool closing;		/* the threads end; `draining` as well */

	unsigned int connection_count;
	struct tombolo_fsal_connection connections[TOMBOLO_FSAL_CONNECTIONS_MAX];
};

/* Starts connecting and waits up to `wait_ms` for the daemon.  Returns 0 or an errno; ENOENT: no such share. */
int tombolo_fsal_session_open(struct tombolo_fsal_session **session, const char *socket_path, const char *share_name,
			      const char *client_name, uint64_t incarnation, unsigned int connection_count,
			      unsigned int wait_ms, const struct tombolo_fsal_session_events *events);
/* From now on requests fail with ESHUTDOWN when the daemon is away. */
void tombolo_fsal_session_drain(struct tombolo_fsal_session *session);
/* Ends the threads; the caller has no request under way.  Drains first. */
void tombolo_fsal_session_close(struct tombolo_fsal_session *session);

/* What the daemon said last. */
struct tombolo_wire_attached tombolo_fsal_session_attached(struct tombolo_fsal_session *session);

/* ---- requests.c ---- */

/* Sends and waits; `done` is not called.  Returns request->error. */
int tombolo_fsal_call(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request);
/* Sends and waits for up to `wait_ms`.  True: the request is answered, and `done` is not called.  False: it is or was
 * called, once, and the request must not be touched here any more. */
bool tombolo_fsal_call_briefly(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
			       unsigned int wait_ms);
/* Appends a buffer to the message. */
void tombolo_fsal_request_add(struct tombolo_fsal_request *request, const void *data, size_t bytes);

/* Sends one message; the send lock is held.  A failure shuts the socket down: its reader notices. */
void tombolo_fsal_send(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request,
		       uint64_t unique_flags);
/* The request of this connection with this number, or NULL. */
struct tombolo_fsal_request *tombolo_fsal_request_find(struct tombolo_fsal_connection *connection, uint64_t unique);
/* Takes the request out of the table and tells whoever waits, or leaves it to the reader.  The caller leads. */
void tombolo_fsal_request_complete(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
				   int error);
/* Completes all of the connection with `error`; it is down. */
void tombolo_fsal_requests_fail(struct tombolo_fsal_connection *connection, int error);
/* Why a request would be refused now; 0: it would not.  The session's lock is held. */
int tombolo_fsal_refusal(const struct tombolo_fsal_session *session);

/* ---- waiting.c ---- */

/* Waits for the answer until it comes or, unless NULL, until `until`.  False: it did not come in time. */
bool tombolo_fsal_await(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
			struct tombolo_fsal_waiter *waiter, const struct timespec *until);
/* The lock is held. */
void tombolo_fsal_waiter_add(struct tombolo_fsal_connection *connection, struct tombolo_fsal_waiter *waiter);
void tombolo_fsal_waiter_answered(struct tombolo_fsal_connection *connection, struct tombolo_fsal_waiter *waiter);
/* A request that nobody waits for is answered; the reader will call its `done`. */
void tombolo_fsal_finished(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request);
/* Wakes whoever is to lead next, if nobody leads: the reader or the next that waits.  Whoever was woken and does not
 * take the lead offers it again.  The lock is held. */
void tombolo_fsal_offer_lead(struct tombolo_fsal_connection *connection);

/* ---- receive.c ---- */

/* Waits for a message and deals with it; the caller leads.  1: one was read, 0: none came in a while, -1: the socket
 * has ended. */
int tombolo_fsal_read_message(struct tombolo_fsal_connection *connection);
/* 0, or -1 when the socket has ended or, while ATTACH is answered, nothing came in time. */
int tombolo_fsal_receive_exactly(struct tombolo_fsal_connection *connection, void *to, size_t bytes);
void tombolo_fsal_log_line(struct tombolo_fsal_connection *connection, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- connection.c ---- */

void *tombolo_fsal_connection_run(void *connection);

#endif
