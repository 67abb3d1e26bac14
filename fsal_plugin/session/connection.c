/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One connection and its thread, the reader, which connects, stands by while the threads
 * that wait for answers read, and connects again:
 *
 *            connected, ATTACH answered
 *     DOWN ----------------------------> UP   fd != -1
 *       ^                                 |
 *       +---------------------------------+
 *         the socket ended, or made no sense
 *
 * On the way up all requests that wait on this connection are marked `resend`, and
 * a second thread, which lives as long as the socket, sends them.  On the way down
 * nothing happens to them, unless the session drains or its share is gone.
 *
 * Owns the sockets, and what the session knows of its last ATTACH.
 */

#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Extended attributes and directories are read in pieces up to this, whatever the limit for data is. */
#define ANSWER_BYTES_MIN (128u << 10)

/* Pause between attempts to reconnect: doubled from the first to the second. */
#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 2000

/* The daemon has this long to answer ATTACH. */
#define ATTACH_S 10

/* A thread that leads looks this often whether it should still wait. */
#define LOOK_UP_MS 5

void tombolo_fsal_log_line(struct tombolo_fsal_connection *connection, const char *format, ...)
{
	const struct tombolo_fsal_session *session = connection->session;
	char reason[200], text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	snprintf(text, sizeof(text), "share %s, connection %u: %s", session->share_name, connection->index, reason);
	session->events.log(session->events.context, text);
}

/* ---- requests that no thread waits for ---- */

/* The lock is held, but for the calls. */
static void finish(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;

	while (connection->finished) {
		struct tombolo_fsal_request *request = connection->finished;

		connection->finished = request->next_finished;
		connection->unattended--;
		pthread_mutex_unlock(&session->lock);
		request->done(request);
		pthread_mutex_lock(&session->lock);
	}
}

/* Until the reader is called, or the socket ends, which is what true says. */
static bool wait_for_call(struct tombolo_fsal_connection *connection)
{
	/* Data that arrives does not wake who asks for the end only. */
	struct pollfd polled[] = {
		{ .fd = connection->any_fd, .events = POLLRDHUP },
		{ .fd = connection->wake_fd, .events = POLLIN },
	};
	eventfd_t calls;

	if (poll(polled, 2, -1) == -1)
		return false;
	if (polled[1].revents)
		(void)eventfd_read(connection->wake_fd, &calls);
	return polled[0].revents != 0;
}

/* Leaves the connection to the threads that wait for answers, while each answer is waited for.  Begins and ends with the
 * lead, and the lock held. */
static void stand_by(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	bool is_over = false;

	connection->led = false;
	for (;;) {
		finish(connection);
		is_over = is_over || connection->ended;
		if (connection->unattended == 0 && !is_over) {
			tombolo_fsal_offer_lead(connection);
			pthread_mutex_unlock(&session->lock);
			is_over = wait_for_call(connection);
			pthread_mutex_lock(&session->lock);
		} else if (connection->led) {
			connection->reader_wants_lead = true;
			pthread_cond_wait(&connection->for_reader, &session->lock);
			connection->reader_wants_lead = false;
		} else {
			connection->led = true;
			return;
		}
	}
}

/* Begins and ends with the lead. */
static void read_until_it_ends(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	int outcome;

	do {
		pthread_mutex_lock(&session->lock);
		if (connection->index != 0 && connection->unattended == 0)
			stand_by(connection);
		pthread_mutex_unlock(&session->lock);
		outcome = tombolo_fsal_read_message(connection);
		pthread_mutex_lock(&session->lock);
		finish(connection);
		pthread_mutex_unlock(&session->lock);
	} while (outcome != -1);
}

/* ---- the way up ---- */

/* Room for two writes of 1 MiB, so that the sender need not wake for every few pages that the daemon takes.  As far as
 * the process may, and the kernel doubles it for its own overhead; smaller is slower, not wrong. */
static void enlarge_send_buffer(int fd)
{
	const int bytes = 2 << 20;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static int open_socket(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool closing;

	if (fd == -1)
		return errno;
	enlarge_send_buffer(fd);
	pthread_mutex_lock(&session->lock);
	closing = session->closing || session->draining;
	if (!closing)
		connection->any_fd = fd;
	pthread_mutex_unlock(&session->lock);
	if (closing) {
		close(fd);
		return ESHUTDOWN;
	}
	if (connect(fd, (struct sockaddr *)&session->address, sizeof(session->address)) == -1)
		return errno;
	return 0;
}

/* 0: none. */
static void set_receive_timeout(int fd, unsigned int ms)
{
	const struct timeval timeout = { .tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
}

/* 0, the daemon's refusal, or EPROTO if it did not make sense. */
static int attach(struct tombolo_fsal_connection *connection, bool resume, struct tombolo_wire_attached *attached)
{
	struct tombolo_fsal_session *session = connection->session;
	uint8_t message[TOMBOLO_WIRE_ATTACH_BYTES_MAX];
	struct fuse_out_header header;
	uint32_t flags = TOMBOLO_WIRE_STABLE | (resume ? TOMBOLO_WIRE_RESUME : 0) |
			 (connection->index == 0 ? TOMBOLO_WIRE_NOTIFY : 0);
	size_t bytes = tombolo_wire_encode_attach(message, flags, session->incarnation, session->client_name,
						  session->share_name);

	/* A new socket takes this much without blocking. */
	if (send(connection->any_fd, message, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		return ECONNRESET;
	set_receive_timeout(connection->any_fd, ATTACH_S * 1000);
	if (tombolo_fsal_receive_exactly(connection, &header, sizeof(header)) == -1)
		return ECONNRESET;
	if (header.len == sizeof(header) && header.error < 0 && header.error > -4096)
		return -header.error;
	if (header.error != 0 || header.len != sizeof(header) + sizeof(*attached) ||
	    tombolo_fsal_receive_exactly(connection, attached, sizeof(*attached)) == -1 || !tombolo_wire_attached_valid(attached))
		return EPROTO;
	/* Where the reader alone reads, it has nothing to look up for. */
	set_receive_timeout(connection->any_fd, connection->index == 0 ? 0 : LOOK_UP_MS);
	return 0;
}

/* Whether a share of the name is still the one that handles were given out for. */
static bool is_same_share(const struct tombolo_fsal_session *session, const struct tombolo_wire_attached *attached)
{
	return !session->attached_once || session->attached.root == attached->root;
}

/* 0 when the connection is up.  ESHUTDOWN: draining began meanwhile and has shut the socket down, so that no request may
 * be sent here while others work. */
static int note_attached(struct tombolo_fsal_connection *connection, const struct tombolo_wire_attached *attached)
{
	struct tombolo_fsal_session *session = connection->session;
	bool back, rebooted;

	pthread_mutex_lock(&connection->send_lock);
	pthread_mutex_lock(&session->lock);
	if (session->draining) {
		pthread_mutex_unlock(&session->lock);
		pthread_mutex_unlock(&connection->send_lock);
		return ESHUTDOWN;
	}
	rebooted = session->attached_once && session->attached.boot != attached->boot;
	back = session->attached_once && (rebooted || connection->index == 0);
	session->attached = *attached;
	session->attached_once = true;
	session->gone = false;
	session->refusal = 0;
	for (unsigned int slot = 0; slot < TOMBOLO_WIRE_SLOTS; slot++) {
		if (session->slots[slot] && session->slots[slot]->connection == connection)
			session->slots[slot]->resend = true;
	}
	connection->fd = connection->any_fd;
	connection->ended = false;
	connection->answer_bytes_max = attached->write_bytes_max;
	if (connection->answer_bytes_max < ANSWER_BYTES_MIN)
		connection->answer_bytes_max = ANSWER_BYTES_MIN;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
	pthread_mutex_unlock(&connection->send_lock);
	if (back)
		session->events.resumed(session->events.context, rebooted);
	return 0;
}

static void note_refused(struct tombolo_fsal_session *session, int error)
{
	pthread_mutex_lock(&session->lock);
	session->refusal = error;
	/* A daemon that is away is waited for; a share that was deleted is not. */
	if (error == ENOENT && session->attached_once)
		session->gone = true;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}

/* 0 when the connection is up. */
static int go_up(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	struct tombolo_wire_attached attached;
	bool resume, same;
	int error;

	pthread_mutex_lock(&session->lock);
	resume = session->attached_once;
	pthread_mutex_unlock(&session->lock);
	error = open_socket(connection);
	if (error == ENOENT)
		return ECONNREFUSED;	/* there is no socket, which says nothing of the share */
	if (error)
		return error;
	error = attach(connection, resume, &attached);
	if (error == 0) {
		pthread_mutex_lock(&session->lock);
		same = is_same_share(session, &attached);
		pthread_mutex_unlock(&session->lock);
		error = same ? 0 : ENOENT;
	}
	if (error) {
		note_refused(session, error);
		return error;
	}
	return note_attached(connection, &attached);
}

/* The next request to repeat, no longer marked.  Both locks are held. */
static struct tombolo_fsal_request *next_to_resend(struct tombolo_fsal_connection *connection, unsigned int *slot)
{
	struct tombolo_fsal_session *session = connection->session;

	for (; *slot < TOMBOLO_WIRE_SLOTS; (*slot)++) {
		struct tombolo_fsal_request *request = session->slots[*slot];

		if (request && request->connection == connection && request->resend) {
			request->resend = false;
			return request;
		}
	}
	return NULL;
}

static void *resend(void *argument)
{
	struct tombolo_fsal_connection *connection = argument;
	struct tombolo_fsal_session *session = connection->session;
	struct tombolo_fsal_request *request;
	unsigned int slot = 0;

	do {
		pthread_mutex_lock(&connection->send_lock);
		pthread_mutex_lock(&session->lock);
		request = next_to_resend(connection, &slot);
		pthread_mutex_unlock(&session->lock);
		if (request)
			tombolo_fsal_send(connection, request, TOMBOLO_WIRE_RESENT);
		pthread_mutex_unlock(&connection->send_lock);
	} while (request);
	return NULL;
}

/* ---- the way down ---- */

static void go_down(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	int fd = connection->any_fd;
	int error;

	if (fd != -1)
		shutdown(fd, SHUT_RDWR);
	pthread_mutex_lock(&connection->send_lock);
	pthread_mutex_lock(&session->lock);
	connection->fd = -1;
	connection->any_fd = -1;
	error = tombolo_fsal_refusal(session);
	if (error == 0 && session->draining)
		error = ESHUTDOWN;
	pthread_mutex_unlock(&session->lock);
	pthread_mutex_unlock(&connection->send_lock);
	if (fd != -1)
		close(fd);
	connection->buffer_begin = 0;
	connection->buffer_end = 0;
	if (error)
		tombolo_fsal_requests_fail(connection, error);
	pthread_mutex_lock(&session->lock);
	finish(connection);
	pthread_mutex_unlock(&session->lock);
}

static void note_failure(struct tombolo_fsal_connection *connection, int error)
{
	if (!connection->failure_logged && error != ESHUTDOWN)
		tombolo_fsal_log_line(connection, "no file service (%s); requests wait, reconnecting", strerror(error));
	connection->failure_logged = true;
}

/* Ends early when the session begins to drain or to close.  A session that drains already is left
 * alone until it closes: nothing is to be connected for. */
static void pause_for(struct tombolo_fsal_session *session, unsigned int pause_ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += pause_ms / 1000;
	until.tv_nsec += (long)(pause_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&session->lock);
	if (session->draining) {
		while (!session->closing)
			pthread_cond_wait(&session->changed, &session->lock);
	}
	while (!session->draining && pthread_cond_timedwait(&session->changed, &session->lock, &until) == 0)
		;
	pthread_mutex_unlock(&session->lock);
}

static bool is_closing(struct tombolo_fsal_session *session)
{
	bool closing;

	pthread_mutex_lock(&session->lock);
	closing = session->closing;
	pthread_mutex_unlock(&session->lock);
	return closing;
}

static void serve(struct tombolo_fsal_connection *connection)
{
	pthread_t resender;

	if (connection->failure_logged)
		tombolo_fsal_log_line(connection, "the file service is back");
	connection->failure_logged = false;
	if (pthread_create(&resender, NULL, resend, connection) != 0) {
		/* Tried again on the next way up. */
		tombolo_fsal_log_line(connection, "cannot start a thread");
		return;
	}
	read_until_it_ends(connection);
	shutdown(connection->any_fd, SHUT_RDWR);
	pthread_join(resender, NULL);
}

void *tombolo_fsal_connection_run(void *argument)
{
	struct tombolo_fsal_connection *connection = argument;
	unsigned int pause_ms = BACKOFF_MIN_MS;

	while (!is_closing(connection->session)) {
		int error = go_up(connection);

		if (error == 0) {
			serve(connection);
			pause_ms = BACKOFF_MIN_MS;
			error = ECONNRESET;
		}
		go_down(connection);
		note_failure(connection, error);
		pause_for(connection->session, pause_ms);
		pause_ms = pause_ms * 2 < BACKOFF_MAX_MS ? pause_ms * 2 : BACKOFF_MAX_MS;
	}
	go_down(connection);
	return NULL;
}
