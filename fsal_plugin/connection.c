/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * One connection, which is one thread that connects, reads, and connects again:
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
 */

#include "session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Small answers are taken from here, many at a time; large ones go straight to their buffers. */
#define BUFFER_BYTES 16384u

/* A notification has a name and a few numbers. */
#define NOTIFICATION_BYTES_MAX 1024u

/* Extended attributes and directories are read in pieces up to this, whatever the limit for data is. */
#define ANSWER_BYTES_MIN (128u << 10)

static void log_line(struct tombolo_fsal_connection *connection, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void log_line(struct tombolo_fsal_connection *connection, const char *format, ...)
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

/* ---- reading ---- */

/* 0, or -1 when the socket has ended. */
static int receive_some(struct tombolo_fsal_connection *connection, void *to, size_t bytes_max, size_t *bytes)
{
	ssize_t received;

	do
		received = recv(connection->any_fd, to, bytes_max, 0);
	while (received == -1 && errno == EINTR);
	if (received <= 0)
		return -1;
	*bytes = (size_t)received;
	return 0;
}

static int receive_exactly(struct tombolo_fsal_connection *connection, void *to, size_t bytes)
{
	uint8_t *end = to;

	while (bytes > 0) {
		size_t ready = connection->buffer_end - connection->buffer_begin;
		size_t taken = ready < bytes ? ready : bytes;

		if (ready > 0) {
			memcpy(end, connection->buffer + connection->buffer_begin, taken);
			connection->buffer_begin += taken;
		} else if (bytes >= BUFFER_BYTES) {
			if (receive_some(connection, end, bytes, &taken) == -1)
				return -1;
		} else {
			connection->buffer_begin = 0;
			connection->buffer_end = 0;
			if (receive_some(connection, connection->buffer, BUFFER_BYTES, &connection->buffer_end) == -1)
				return -1;
			continue;
		}
		end += taken;
		bytes -= taken;
	}
	return 0;
}

static int receive_scattered(struct tombolo_fsal_connection *connection, const struct iovec *parts,
			     unsigned int part_count, size_t bytes)
{
	for (unsigned int i = 0; i < part_count && bytes > 0; i++) {
		size_t taken = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;

		if (receive_exactly(connection, parts[i].iov_base, taken) == -1)
			return -1;
		bytes -= taken;
	}
	return 0;
}

static int read_notification(struct tombolo_fsal_connection *connection, const struct fuse_out_header *header)
{
	const struct tombolo_fsal_session_events *events = &connection->session->events;
	struct tombolo_wire_notification notification;
	uint8_t body[NOTIFICATION_BYTES_MAX];
	size_t bytes = header->len - sizeof(*header);

	if (bytes > sizeof(body) || receive_exactly(connection, body, bytes) == -1)
		return -1;
	switch (tombolo_wire_decode_notification(header->error, body, bytes, &notification)) {
	case 1:
		events->notified(events->context, &notification);
		return 0;
	case 0:
		return 0;
	default:
		log_line(connection, "malformed notification %d", header->error);
		return -1;
	}
}

static int read_answer(struct tombolo_fsal_connection *connection, const struct fuse_out_header *header)
{
	struct tombolo_fsal_request *request = tombolo_fsal_request_find(connection, header->unique);
	size_t bytes = header->len - sizeof(*header);
	size_t room = 0;

	if (!request) {
		log_line(connection, "an answer to no request, %llu", (unsigned long long)header->unique);
		return -1;
	}
	for (unsigned int i = 0; i < request->reply_count; i++)
		room += request->reply[i].iov_len;
	if (bytes > room) {
		/* Asked again, the daemon would answer the same. */
		log_line(connection, "%zu bytes in answer to request %u, which takes %zu", bytes,
			 request->header.opcode, room);
		tombolo_fsal_request_complete(connection->session, request, EIO);
		return -1;
	}
	if (receive_scattered(connection, request->reply, request->reply_count, bytes) == -1)
		return -1;
	request->reply_bytes = bytes;
	tombolo_fsal_request_complete(connection->session, request, -header->error);
	return 0;
}

static void read_until_it_ends(struct tombolo_fsal_connection *connection)
{
	size_t body_bytes_max = tombolo_fsal_session_attached(connection->session).write_bytes_max;
	struct fuse_out_header header;

	if (body_bytes_max < ANSWER_BYTES_MIN)
		body_bytes_max = ANSWER_BYTES_MIN;
	while (receive_exactly(connection, &header, sizeof(header)) == 0) {
		if (!tombolo_wire_reply_valid(&header, body_bytes_max)) {
			log_line(connection, "malformed answer: length %u, error %d", header.len, header.error);
			return;
		}
		if (header.unique == 0 ? read_notification(connection, &header) == -1 :
					 read_answer(connection, &header) == -1)
			return;
	}
}

/* ---- the way up ---- */

static int open_socket(struct tombolo_fsal_connection *connection)
{
	struct tombolo_fsal_session *session = connection->session;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool closing;

	if (fd == -1)
		return errno;
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

static void set_receive_timeout(int fd, int seconds)
{
	const struct timeval timeout = { .tv_sec = seconds };

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
	set_receive_timeout(connection->any_fd, TOMBOLO_FSAL_ATTACH_S);
	if (receive_exactly(connection, &header, sizeof(header)) == -1)
		return ECONNRESET;
	if (header.len == sizeof(header) && header.error < 0 && header.error > -4096)
		return -header.error;
	if (header.error != 0 || header.len != sizeof(header) + sizeof(*attached) ||
	    receive_exactly(connection, attached, sizeof(*attached)) == -1 || !tombolo_wire_attached_valid(attached))
		return EPROTO;
	set_receive_timeout(connection->any_fd, 0);
	return 0;
}

/* Whether a share of the name is still the one that handles were given out for. */
static bool is_same_share(const struct tombolo_fsal_session *session, const struct tombolo_wire_attached *attached)
{
	return !session->attached_once || session->attached.root == attached->root;
}

static void note_attached(struct tombolo_fsal_connection *connection, const struct tombolo_wire_attached *attached)
{
	struct tombolo_fsal_session *session = connection->session;
	bool back, rebooted;

	pthread_mutex_lock(&connection->send_lock);
	pthread_mutex_lock(&session->lock);
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
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
	pthread_mutex_unlock(&connection->send_lock);
	if (back)
		session->events.resumed(session->events.context, rebooted);
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
	if (error)
		note_refused(session, error);
	else
		note_attached(connection, &attached);
	return error;
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
}

static void note_failure(struct tombolo_fsal_connection *connection, int error)
{
	if (!connection->failure_logged && error != ESHUTDOWN)
		log_line(connection, "no file service (%s); requests wait, reconnecting", strerror(error));
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
		log_line(connection, "the file service is back");
	connection->failure_logged = false;
	if (pthread_create(&resender, NULL, resend, connection) != 0) {
		/* Tried again on the next way up. */
		log_line(connection, "cannot start a thread");
		return;
	}
	read_until_it_ends(connection);
	shutdown(connection->any_fd, SHUT_RDWR);
	pthread_join(resender, NULL);
}

void *tombolo_fsal_connection_run(void *argument)
{
	struct tombolo_fsal_connection *connection = argument;
	unsigned int pause_ms = TOMBOLO_FSAL_BACKOFF_MIN_MS;

	while (!is_closing(connection->session)) {
		int error = go_up(connection);

		if (error == 0) {
			serve(connection);
			pause_ms = TOMBOLO_FSAL_BACKOFF_MIN_MS;
			error = ECONNRESET;
		}
		go_down(connection);
		note_failure(connection, error);
		pause_for(connection->session, pause_ms);
		pause_ms = pause_ms * 2 < TOMBOLO_FSAL_BACKOFF_MAX_MS ? pause_ms * 2 : TOMBOLO_FSAL_BACKOFF_MAX_MS;
	}
	go_down(connection);
	return NULL;
}
