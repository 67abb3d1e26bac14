/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Requests under way: numbers, the table of slots, sending and waiting.
 *
 * A request's number decides its slot, so that a number is never used while one
 * with the same slot is unanswered: the daemon keeps what a change did under the
 * slot, for the case that it is asked again.
 */

#include "session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

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

/* A promise of a slot, so that nobody waits for one with a send lock held. */
static int reserve_slot(struct tombolo_fsal_session *session)
{
	int error;

	pthread_mutex_lock(&session->lock);
	while ((error = tombolo_fsal_refusal(session)) == 0 && session->slot_count == TOMBOLO_WIRE_SLOTS)
		pthread_cond_wait(&session->changed, &session->lock);
	if (error == 0)
		session->slot_count++;
	pthread_mutex_unlock(&session->lock);
	return error;
}

/* The next one that is up, or simply the next.  `fd` is only a hint here. */
static struct tombolo_fsal_connection *choose_connection(struct tombolo_fsal_session *session)
{
	struct tombolo_fsal_connection *chosen = NULL;

	pthread_mutex_lock(&session->lock);
	for (unsigned int tried = 0; tried < session->connection_count; tried++) {
		chosen = &session->connections[session->next_connection];
		session->next_connection = (session->next_connection + 1) % session->connection_count;
		if (chosen->fd != -1)
			break;
	}
	pthread_mutex_unlock(&session->lock);
	return chosen;
}

/* The caller has reserved a slot, so one is free.  The send lock is held. */
static int enter(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request)
{
	struct tombolo_fsal_session *session = connection->session;
	int error;

	pthread_mutex_lock(&session->lock);
	error = tombolo_fsal_refusal(session);
	if (error == 0 && session->draining && connection->fd == -1)
		error = ESHUTDOWN;
	if (error == 0) {
		do
			session->next_unique += 2;
		while (session->slots[SLOT_OF(session->next_unique)]);
		request->header.unique = session->next_unique;
		request->connection = connection;
		request->resend = false;
		session->slots[SLOT_OF(session->next_unique)] = request;
	} else {
		session->slot_count--;
		pthread_cond_broadcast(&session->changed);
	}
	pthread_mutex_unlock(&session->lock);
	return error;
}

static void refuse(struct tombolo_fsal_request *request, int error)
{
	request->error = error;
	request->reply_bytes = 0;
	request->done(request);
}

void tombolo_fsal_submit(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request)
{
	struct tombolo_fsal_connection *connection;
	size_t bytes = sizeof(request->header);
	int error;

	for (unsigned int i = 0; i < request->body_count; i++)
		bytes += request->body[i].iov_len;
	request->header.len = (uint32_t)bytes;

	error = reserve_slot(session);
	if (error) {
		refuse(request, error);
		return;
	}
	connection = choose_connection(session);
	pthread_mutex_lock(&connection->send_lock);
	error = enter(connection, request);
	if (error == 0 && connection->fd != -1)
		tombolo_fsal_send(connection, request, 0);
	pthread_mutex_unlock(&connection->send_lock);
	if (error)
		refuse(request, error);
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
	pthread_mutex_lock(&session->lock);
	session->slots[SLOT_OF(request->header.unique)] = NULL;
	/* Somebody waits only for the last one. */
	if (session->slot_count == TOMBOLO_WIRE_SLOTS)
		pthread_cond_broadcast(&session->changed);
	session->slot_count--;
	pthread_mutex_unlock(&session->lock);
	request->error = error;
	request->done(request);
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

/* ---- waiting ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	bool is_answered;
};

static void wake(struct tombolo_fsal_request *request)
{
	struct waiter *waiter = request->context;

	pthread_mutex_lock(&waiter->lock);
	waiter->is_answered = true;
	pthread_cond_signal(&waiter->answered);
	pthread_mutex_unlock(&waiter->lock);
}

int tombolo_fsal_call(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request)
{
	struct waiter waiter = { .lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER };

	request->done = wake;
	request->context = &waiter;
	tombolo_fsal_submit(session, request);
	pthread_mutex_lock(&waiter.lock);
	while (!waiter.is_answered)
		pthread_cond_wait(&waiter.answered, &waiter.lock);
	pthread_mutex_unlock(&waiter.lock);
	pthread_cond_destroy(&waiter.answered);
	pthread_mutex_destroy(&waiter.lock);
	return request->error;
}
