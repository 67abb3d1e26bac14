/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Threads that wait for an answer, and the lead of a connection among them.
 *
 * Mechanism: leader/followers.  Whoever waits and finds the lead free reads messages until
 * its own answer is among them; the others sleep, each on a condition of its own, so
 * that an answer wakes the one that it is for.  Giving the lead back wakes one more: the reader
 * if it asked for the lead, else the first that waits.
 *
 * Invariant: while a connection is up and a request is under way there, somebody leads, or
 * was woken to lead and has not run yet.
 *
 * Owns connection->led and connection->waiters.  Messages are read by receive.c.
 */

#include "internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

/* ---- the lead ---- */

void tombolo_fsal_offer_lead(struct tombolo_fsal_connection *connection)
{
	if (connection->led)
		return;
	if (connection->reader_wants_lead)
		pthread_cond_signal(&connection->for_reader);
	else if (connection->waiters)
		pthread_cond_signal(&connection->waiters->woken);
}

static bool may_lead(const struct tombolo_fsal_connection *connection)
{
	return !connection->led && !connection->reader_wants_lead && !connection->ended && connection->fd != -1;
}

static bool is_over(const struct timespec *until)
{
	struct timespec current;

	if (!until)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &current);
	return current.tv_sec > until->tv_sec ||
	       (current.tv_sec == until->tv_sec && current.tv_nsec >= until->tv_nsec);
}

/* Reads for all until the waiter's answer is there; the lock is released meanwhile.  False: it is too late. */
static bool lead(struct tombolo_fsal_connection *connection, const struct tombolo_fsal_waiter *waiter,
		 const struct timespec *until)
{
	struct tombolo_fsal_session *session = connection->session;
	bool in_time;

	connection->led = true;
	do {
		int outcome;

		pthread_mutex_unlock(&session->lock);
		outcome = tombolo_fsal_read_message(connection);
		pthread_mutex_lock(&session->lock);
		if (outcome == -1) {
			connection->ended = true;
			/* Calls the reader. */
			shutdown(connection->any_fd, SHUT_RDWR);
		}
		in_time = waiter->answered || !is_over(until);
	} while (in_time && !waiter->answered && !connection->ended && !connection->reader_wants_lead);
	connection->led = false;
	tombolo_fsal_offer_lead(connection);
	return in_time;
}

/* ---- waiting ---- */

void tombolo_fsal_waiter_add(struct tombolo_fsal_connection *connection, struct tombolo_fsal_waiter *waiter)
{
	waiter->previous = NULL;
	waiter->next = connection->waiters;
	if (waiter->next)
		waiter->next->previous = waiter;
	connection->waiters = waiter;
}

static void waiter_remove(struct tombolo_fsal_connection *connection, struct tombolo_fsal_waiter *waiter)
{
	if (waiter->next)
		waiter->next->previous = waiter->previous;
	if (waiter->previous)
		waiter->previous->next = waiter->next;
	else
		connection->waiters = waiter->next;
}

void tombolo_fsal_waiter_answered(struct tombolo_fsal_connection *connection, struct tombolo_fsal_waiter *waiter)
{
	waiter_remove(connection, waiter);
	waiter->answered = true;
	pthread_cond_signal(&waiter->woken);
}

void tombolo_fsal_finished(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request)
{
	request->next_finished = connection->finished;
	connection->finished = request;
	pthread_cond_signal(&connection->for_reader);
}

/* Nobody waits for this request any more, so the reader is to see to it. */
static void leave_to_reader(struct tombolo_fsal_connection *connection, struct tombolo_fsal_request *request)
{
	waiter_remove(connection, request->waiter);
	request->waiter = NULL;
	/* The reader stands by only while there is none, so it need not be called for the second. */
	if (connection->unattended++ == 0)
		(void)eventfd_write(connection->wake_fd, 1);
}

/* False: it is too late. */
static bool sleep_until(struct tombolo_fsal_session *session, struct tombolo_fsal_waiter *waiter,
			const struct timespec *until)
{
	if (until)
		return pthread_cond_clockwait(&waiter->woken, &session->lock, CLOCK_MONOTONIC, until) != ETIMEDOUT;
	pthread_cond_wait(&waiter->woken, &session->lock);
	return true;
}

bool tombolo_fsal_await(struct tombolo_fsal_session *session, struct tombolo_fsal_request *request,
			struct tombolo_fsal_waiter *waiter, const struct timespec *until)
{
	struct tombolo_fsal_connection *connection = request->connection;
	bool in_time = true;

	pthread_mutex_lock(&session->lock);
	while (!waiter->answered && in_time) {
		if (may_lead(connection))
			in_time = lead(connection, waiter, until);
		else
			in_time = sleep_until(session, waiter, until);
	}
	if (!waiter->answered)
		leave_to_reader(connection, request);
	connection->users--;
	/* The offer may have been made to this thread, which goes. */
	tombolo_fsal_offer_lead(connection);
	in_time = waiter->answered;
	pthread_mutex_unlock(&session->lock);
	return in_time;
}
