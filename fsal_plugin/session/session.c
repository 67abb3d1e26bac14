/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Opening and closing sessions: memory, threads, and the wait for the first
 * answer.  What happens in between is in requests.c and connection.c.
 *
 * Owns the memory of the session and of its connections.
 */

#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void free_session(struct tombolo_fsal_session *session)
{
	for (unsigned int i = 0; i < session->connection_count; i++) {
		struct tombolo_fsal_connection *connection = &session->connections[i];

		free(connection->buffer);
		if (connection->wake_fd != -1)
			close(connection->wake_fd);
		pthread_cond_destroy(&connection->for_reader);
		pthread_mutex_destroy(&connection->send_lock);
	}
	pthread_cond_destroy(&session->changed);
	pthread_mutex_destroy(&session->lock);
	free(session->share_name);
	free(session->client_name);
	free(session);
}

static int init_locks(struct tombolo_fsal_session *session)
{
	pthread_condattr_t attributes;

	/* Pauses must not depend on somebody setting the clock. */
	if (pthread_condattr_init(&attributes) != 0)
		return ENOMEM;
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&session->lock, NULL);
	pthread_cond_init(&session->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return 0;
}

static struct tombolo_fsal_session *allocate(const char *socket_path, const char *share_name, const char *client_name,
					     unsigned int connection_count)
{
	struct tombolo_fsal_session *session = calloc(1, sizeof(*session));
	bool complete;

	if (!session || init_locks(session) != 0) {
		free(session);
		return NULL;
	}
	session->address.sun_family = AF_UNIX;
	strcpy(session->address.sun_path, socket_path);
	session->share_name = strdup(share_name);
	session->client_name = strdup(client_name);
	session->connection_count = connection_count;
	complete = session->share_name && session->client_name;
	for (unsigned int i = 0; i < connection_count; i++) {
		struct tombolo_fsal_connection *connection = &session->connections[i];

		*connection = (struct tombolo_fsal_connection){
			.session = session,
			.index = i,
			.fd = -1,
			.any_fd = -1,
			.led = true,	/* by the reader, which has yet to start */
			.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			.buffer = malloc(TOMBOLO_FSAL_BUFFER_BYTES),
		};
		pthread_mutex_init(&connection->send_lock, NULL);
		pthread_cond_init(&connection->for_reader, NULL);
		complete = complete && connection->buffer && connection->wake_fd != -1;
	}
	if (!complete) {
		free_session(session);
		return NULL;
	}
	return session;
}

static int start_threads(struct tombolo_fsal_session *session)
{
	for (unsigned int i = 0; i < session->connection_count; i++) {
		struct tombolo_fsal_connection *connection = &session->connections[i];
		int error = pthread_create(&connection->reader, NULL, tombolo_fsal_connection_run, connection);

		if (error)
			return error;
		connection->reader_started = true;
	}
	return 0;
}

/* 0, or why the daemon refuses, or ETIMEDOUT. */
static int wait_for_attachment(struct tombolo_fsal_session *session, unsigned int wait_ms)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	pthread_mutex_lock(&session->lock);
	/* That there is no such share will not change by waiting; all else may. */
	while (!session->attached_once && session->refusal != ENOENT && error == 0)
		error = pthread_cond_timedwait(&session->changed, &session->lock, &until);
	if (session->attached_once)
		error = 0;
	else if (session->refusal)
		error = session->refusal;
	pthread_mutex_unlock(&session->lock);
	return error;
}

int tombolo_fsal_session_open(struct tombolo_fsal_session **opened, const char *socket_path, const char *share_name,
			      const char *client_name, uint64_t incarnation, unsigned int connection_count,
			      unsigned int wait_ms, const struct tombolo_fsal_session_events *events)
{
	struct tombolo_fsal_session *session;
	int error;

	if (strlen(socket_path) >= sizeof(session->address.sun_path) || connection_count == 0 ||
	    connection_count > TOMBOLO_FSAL_CONNECTIONS_MAX || !tombolo_wire_name_valid(share_name) ||
	    strlen(client_name) > TOMBOLO_WIRE_CLIENT_NAME_BYTES_MAX)
		return EINVAL;
	session = allocate(socket_path, share_name, client_name, connection_count);
	if (!session)
		return ENOMEM;
	session->incarnation = incarnation;
	session->events = *events;
	error = start_threads(session);
	if (error == 0)
		error = wait_for_attachment(session, wait_ms);
	if (error) {
		tombolo_fsal_session_close(session);
		return error;
	}
	*opened = session;
	return 0;
}

void tombolo_fsal_session_drain(struct tombolo_fsal_session *session)
{
	pthread_mutex_lock(&session->lock);
	session->draining = true;
	for (unsigned int i = 0; i < session->connection_count; i++) {
		/* One that is on its way up is told to give up; its reader then fails what waits there. */
		if (session->connections[i].fd == -1 && session->connections[i].any_fd != -1)
			shutdown(session->connections[i].any_fd, SHUT_RDWR);
	}
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
}

void tombolo_fsal_session_close(struct tombolo_fsal_session *session)
{
	pthread_mutex_lock(&session->lock);
	session->closing = true;
	session->draining = true;
	for (unsigned int i = 0; i < session->connection_count; i++) {
		if (session->connections[i].any_fd != -1)
			shutdown(session->connections[i].any_fd, SHUT_RDWR);
	}
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
	for (unsigned int i = 0; i < session->connection_count; i++) {
		if (session->connections[i].reader_started)
			pthread_join(session->connections[i].reader, NULL);
	}
	free_session(session);
}

struct tombolo_wire_attached tombolo_fsal_session_attached(struct tombolo_fsal_session *session)
{
	struct tombolo_wire_attached attached;

	pthread_mutex_lock(&session->lock);
	attached = session->attached;
	pthread_mutex_unlock(&session->lock);
	return attached;
}
