/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Requests under way: numbers, the table of slots, sending.
 *
 * A request's number decides its slot, so that a number is never used while one
 * with the same slot is unanswered: the daemon keeps what a change did under the
 * slot, for the case that it is asked again.
 *
 * Owns session->slots.  Who waits for an answer is waiting.c's; reading it is receive.c's.
 */

#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SLOT_OF(unique) (((unique) >> 1) % TOMBOLO_WIRE_SLOTS)

void tombolo_fsal_request_add(struct tombolo_fsal_request *request, const void *data, size_t bytes)
{
	assert(request->body_count < TOMBOLO_FSAL_BODY_PARTS_MAX);
	request->body[request->body_count++] = (struct iovec){ .iov_base = (void *)data, .iov_len = bytes };
}

int tombolo_fsal_refusal(const struct tombolo_fsal_session *session)
{
	if (session->closing)
		return ESHUTDOWN;
	if (session->gone)
		return ESTALE;
	return 0;
}

/* ---- sending ---- */

static void skip_sent(struct msghdr *message, size_t bytes)
{
	while (bytes > 0) {
		struct iovec *part = message->msg_iov;
		size_t taken = bytes < part->iov_len ? bytes : part->iov_len;

		part->iov_base = (uint8_t *)part->iov_base + taken;
		part->iov_len -= taken;
		bytes -= taken;
		if (part->iov_len == 0) {
			message->msg_iov++;
			message->msg_iovlen--;
		}
	}
}

void tombolo_fsal_send(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request,
		       uint64_t unique_flags)
{
	struct fuse_in_header header = request->header;
	struct iovec parts[1 + TOMBOLO_FSAL_BODY_PARTS_MAX];
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 1 + request->body_count };
	size_t rest = header.len;

	header.unique |= unique_flags;
	parts[0] = (struct iovec){ .iov_base = &header, .iov_len = sizeof(header) };
	memcpy(parts + 1, request->body, request->body_count * sizeof(parts[0]));
	while (rest > 0) {
		ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);

		if (sent == -1) {
			if (errno == EINTR)
				continue;
			shutdown(connection->fd, SHUT_RDWR);
			return;
		}
		rest -= (size_t)sent;
		/* With nothing left the request may have been answered and freed; parts[] is ours. */
		skip_sent(&message, (size_t)sent);
	}
}

/* How well a connection would take one more request: the higher the better. */
static int fitness(const struct tombolo_fsal_connection *connection)
{
	const bool is_up = connection->fd != -1;
	const bool is_for_requests = connection->index != 0;
	const int load = (int)(connection->users + connection->unattended);

	return (is_up ? 4 : 0) * (int)TOMBOLO_WIRE_SLOTS + (is_for_requests ? 2 : 0) * (int)TOMBOLO_WIRE_SLOTS - load;
}

/* The first of those with the least to do: what was used last is warm.  `fd` is only a hint here. */
static struct tombolo_fsal_connection *choose_connection(struct tombolo_fsal_session *session)
{
	struct tombolo_fsal_connection *chosen = &session->connections[0];

	for (unsigned int i = 1; i < session->connection_count; i++) {
		if (fitness(&session->connections[i]) > fitness(chosen))
			chosen = &session->connections[i];
	}
	return chosen;
}

/* A connection and the promise of a slot, so that nobody waits for one with a send lock held. */
static int reserve(struct tombolo_fsal_session *session, struct tombolo_fsal_connection **connection)
{
	int error;

	pthread_mutex_lock(&session->lock);
	while ((error = tombolo_fsal_refusal(session)) == 0 && session->slot_count == TOMBOLO_WIRE_SLOTS)
		pthread_cond_wait(&session->changed, &session->lock);
	if (error == 0) {
		session->slot_count++;
		*connection = choose_connection(session);
		(*connection)->users++;
	}
	pthread_mutex_unlock(&session->lock);
	return error;
}

/* Gives a number and a slot: the caller has reserved one, so one is free. */
static void take_slot(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request)
{
	do
		session->next_unique += 2;
	while (session->slots[SLOT_OF(session->next_unique)]);
	request->header.unique = session->next_unique;
	session->slots[SLOT_OF(session->next_unique)] = request;
}

/* The send lock is held. */
static int enter(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request)
{
	struct tombolo_fsal_session *session = connection->session;
	int error;

	pthread_mutex_lock(&session->lock);
	error = tombolo_fsal_refusal(session);
	if (error == 0 && session->draining && connection->fd == -1)
		error = ESHUTDOWN;
	if (error == 0) {
		request->connection = connection;
		request->resend = false;
		take_slot(session, request);
		tombolo_fsal_waiter_add(connection, request->waiter);
	} else {
		session->slot_count--;
		connection->users--;
		pthread_cond_broadcast(&session->changed);
	}
	pthread_mutex_unlock(&session->lock);
	return error;
}

/* Sends it, if the connection is up.  Returns 0 or an errno, which is all that becomes of the request then. */
static int dispatch(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request)
{
	struct tombolo_fsal_connection *connection;
	size_t bytes = sizeof(request->header);
	int error;

	for (unsigned int i = 0; i < request->body_count; i++)
		bytes += request->body[i].iov_len;
	request->header.len = (uint32_t)bytes;

	error = reserve(session, &connection);
	if (error)
		return error;
	pthread_mutex_lock(&connection->send_lock);
	error = enter(connection, request);
	if (error == 0 && connection->fd != -1)
		tombolo_fsal_send(connection, request, 0);
	pthread_mutex_unlock(&connection->send_lock);
	return error;
}

static bool call(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
		 const struct timespec *until)
{
	struct tombolo_fsal_waiter waiter = { .woken = PTHREAD_COND_INITIALIZER };
	bool is_answered = true;
	int error;

	request->waiter = &waiter;
	error = dispatch(session, request);
	if (error) {
		request->error = error;
		request->reply_bytes = 0;
	} else {
		is_answered = tombolo_fsal_await(session, request, &waiter, until);
	}
	pthread_cond_destroy(&waiter.woken);
	return is_answered;
}

int tombolo_fsal_session_call(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request)
{
	(void)call(session, request, NULL);
	return request->error;
}

bool tombolo_fsal_session_call_briefly(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
				       unsigned int wait_ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	return call(session, request, &until);
}

/* ---- completing ---- */

struct tombolo_fsal_request *tombolo_fsal_request_find(struct tombolo_fsal_connection *connection, uint64_t unique)
{
	struct tombolo_fsal_session *session = connection->session;
	struct tombolo_fsal_request *request;

	unique &= ~TOMBOLO_WIRE_RESENT;
	pthread_mutex_lock(&session->lock);
	request = session->slots[SLOT_OF(unique)];
	if (request && (request->header.unique != unique || request->connection != connection || request->resend))
		request = NULL;
	pthread_mutex_unlock(&session->lock);
	return request;
}

void tombolo_fsal_request_complete(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
				   int error)
{
	struct tombolo_fsal_connection *connection = request->connection;

	pthread_mutex_lock(&session->lock);
	session->slots[SLOT_OF(request->header.unique)] = NULL;
	/* Somebody waits only for the last one. */
	if (session->slot_count == TOMBOLO_WIRE_SLOTS)
		pthread_cond_broadcast(&session->changed);
	session->slot_count--;
	request->error = error;
	if (request->waiter)
		tombolo_fsal_waiter_answered(connection, request->waiter);
	else
		tombolo_fsal_finished(connection, request);
	pthread_mutex_unlock(&session->lock);
}

void tombolo_fsal_requests_fail(struct tombolo_fsal_connection *connection, int error)
{
	struct tombolo_fsal_session *session = connection->session;

	for (unsigned int slot = 0; slot < TOMBOLO_WIRE_SLOTS; slot++) {
		struct tombolo_fsal_request *request;

		/* Whoever is between entering and sending is let finish. */
		pthread_mutex_lock(&connection->send_lock);
		pthread_mutex_lock(&session->lock);
		request = session->slots[slot];
		if (request && request->connection != connection)
			request = NULL;
		pthread_mutex_unlock(&session->lock);
		pthread_mutex_unlock(&connection->send_lock);
		if (request) {
			request->reply_bytes = 0;
			tombolo_fsal_request_complete(session, request, error);
		}
	}
}
