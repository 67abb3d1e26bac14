/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * How a session works: what its files share, and nobody else includes.
 *
 *   session.c     opening and closing: memory, threads, the wait for the first answer
 *   requests.c    numbers requests, sends them, hands over replies
 *   waiting.c     threads that wait for replies, and read them meanwhile
 *   connection.c  one connection: connecting, ATTACH, repeating
 *   receive.c     reading messages from a connection
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
 */

#ifndef TOMBOLO_FSAL_SESSION_INTERNAL_H
#define TOMBOLO_FSAL_SESSION_INTERNAL_H

#include <pthread.h>
#include <sys/un.h>

#include "session.h"

/* Small answers are received many at a time; large ones go straight to their buffers. */
#define TOMBOLO_FSAL_BUFFER_BYTES 16384u

/* On the stack of a thread that waits for an answer.  All under session->lock. */
struct tombolo_fsal_waiter {
	pthread_cond_t woken;	/* answered, or the lead may be taken */
	bool answered;
	/* Among those of the connection that are not answered. */
	struct tombolo_fsal_waiter *previous, *next;
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

/* ---- requests.c ---- */

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

/* ---- connection.c ---- */

/* The reader's thread, which pthread_create() calls: from the opening of the session to its closing. */
void *tombolo_fsal_connection_run(void *connection);
/* One line for the session's log, with the share and the connection in front.  Takes no lock. */
void tombolo_fsal_log_line(struct tombolo_fsal_connection *connection, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
