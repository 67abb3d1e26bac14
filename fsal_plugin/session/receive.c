/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Reading messages from a connection: answers, into the buffers of their requests, and
 * notifications.  All of this is done by the thread that has the lead.
 *
 * Owns connection->buffer.  What a message may look like is wire.c's.
 */

#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* A notification has a name and a few numbers. */
#define NOTIFICATION_BYTES_MAX 1024u

/* 1, 0 when nothing came within the socket's time limit, or -1 when the socket has ended. */
static int receive_some(struct tombolo_fsal_connection *connection, void *to, size_t bytes_max, size_t *bytes)
{
	ssize_t received;

	do
		received = recv(connection->any_fd, to, bytes_max, 0);
	while (received == -1 && errno == EINTR);
	if (received > 0) {
		*bytes = (size_t)received;
		return 1;
	}
	return received == -1 && errno == EAGAIN ? 0 : -1;
}

/* As receive_some(), into the empty buffer. */
static int refill(struct tombolo_fsal_connection *connection)
{
	connection->buffer_begin = 0;
	connection->buffer_end = 0;
	return receive_some(connection, connection->buffer, TOMBOLO_FSAL_BUFFER_BYTES, &connection->buffer_end);
}

int tombolo_fsal_receive_exactly(struct tombolo_fsal_connection *connection, void *to, size_t bytes)
{
	/* A message that has begun will go on; an ATTACH must be answered in time. */
	const bool is_patient = connection->fd != -1;
	uint8_t *end = to;

	while (bytes > 0) {
		size_t ready = connection->buffer_end - connection->buffer_begin;
		size_t taken = ready < bytes ? ready : bytes;
		int outcome = 1;

		if (ready > 0) {
			memcpy(end, connection->buffer + connection->buffer_begin, taken);
			connection->buffer_begin += taken;
		} else {
			taken = 0;
			outcome = bytes < TOMBOLO_FSAL_BUFFER_BYTES ? refill(connection) :
								      receive_some(connection, end, bytes, &taken);
		}
		if (outcome == -1 || (outcome == 0 && !is_patient))
			return -1;
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

		if (tombolo_fsal_receive_exactly(connection, parts[i].iov_base, taken) == -1)
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

	if (bytes > sizeof(body) || tombolo_fsal_receive_exactly(connection, body, bytes) == -1)
		return -1;
	switch (tombolo_wire_decode_notification(header->error, body, bytes, &notification)) {
	case 1:
		events->notified(events->context, &notification);
		return 0;
	case 0:
		return 0;
	default:
		tombolo_fsal_log_line(connection, "malformed notification %d", header->error);
		return -1;
	}
}

static int read_answer(struct tombolo_fsal_connection *connection, const struct fuse_out_header *header)
{
	struct tombolo_fsal_request *request = tombolo_fsal_request_find(connection, header->unique);
	size_t bytes = header->len - sizeof(*header);
	size_t room = 0;

	if (!request) {
		tombolo_fsal_log_line(connection, "an answer to no request, %llu", (unsigned long long)header->unique);
		return -1;
	}
	for (unsigned int i = 0; i < request->reply_count; i++)
		room += request->reply[i].iov_len;
	if (bytes > room) {
		/* Asked again, the daemon would answer the same. */
		tombolo_fsal_log_line(connection, "%zu bytes in answer to request %u, which takes %zu", bytes,
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

static bool is_valid(struct tombolo_fsal_connection *connection, const struct fuse_out_header *header)
{
	if (tombolo_wire_reply_valid(header, connection->answer_bytes_max))
		return true;
	tombolo_fsal_log_line(connection, "malformed answer: length %u, error %d", header->len, header->error);
	return false;
}

int tombolo_fsal_read_message(struct tombolo_fsal_connection *connection)
{
	struct fuse_out_header header;
	int outcome;

	if (connection->buffer_begin == connection->buffer_end) {
		outcome = refill(connection);
		if (outcome != 1)
			return outcome;
	}
	if (tombolo_fsal_receive_exactly(connection, &header, sizeof(header)) == -1 || !is_valid(connection, &header))
		return -1;
	outcome = header.unique == 0 ? read_notification(connection, &header) : read_answer(connection, &header);
	return outcome == 0 ? 1 : -1;
}
