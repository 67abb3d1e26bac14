/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The SCSI commands of one logical unit that are under way.
 *
 * A request is `active` from its start to its end, whether or not a server is
 * there: without one its operation is simply not issued, and on the return of the
 * server all such operations are issued in the order in which the requests were
 * started.  Operations are idempotent, so issuing one again that the lost server
 * had already done is harmless; what must not be repeated (a comparison that has
 * succeeded) is a step between operations and is not repeated.
 *
 * Range locks: a request that must be atomic (COMPARE AND WRITE, ORWRITE, writing
 * with verification) is exclusive.  Overlapping requests that change data start in
 * order of arrival, one waiting for the other, if either is exclusive.  While there
 * is no exclusive request nothing is compared.
 */

#include <errno.h>
#include <string.h>

#include "tgt_plugin.h"

/* NBD lengths have 32 bits; a multiple of every block size. */
#define ZERO_BYTES_MAX (1u << 30)

/* What a server without WRITE_ZEROES is sent instead. */
static uint8_t zeroes[TOMBOLO_TGT_SCRATCH_BYTES];

/* ---- allocation ---- */

void tombolo_tgt_requests_init(struct tombolo_tgt_lu *lu)
{
	INIT_LIST_HEAD(&lu->active);
	INIT_LIST_HEAD(&lu->waiting);
	INIT_LIST_HEAD(&lu->replied);
	INIT_LIST_HEAD(&lu->refused);
	INIT_LIST_HEAD(&lu->unused);
}

void tombolo_tgt_requests_exit(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_request *request, *next;

	list_for_each_entry_safe(request, next, &lu->unused, link) {
		list_del(&request->link);
		free(request);
	}
}

static struct tombolo_tgt_request *take_unused(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_request *request;

	if (lu->request_count >= TOMBOLO_TGT_REQUESTS_MAX)
		return NULL;
	if (list_empty(&lu->unused))
		return malloc(sizeof(*request));
	request = list_first_entry(&lu->unused, struct tombolo_tgt_request, link);
	list_del(&request->link);
	return request;
}

struct tombolo_tgt_request *tombolo_tgt_request_new(struct tombolo_tgt_lu *lu, struct scsi_cmd *cmd)
{
	struct tombolo_tgt_request *request = take_unused(lu);

	set_cmd_async(cmd);
	if (!request) {
		list_add_tail(&cmd->bs_list, &lu->refused);
		tombolo_tgt_run_soon(lu);
		return NULL;
	}
	*request = (struct tombolo_tgt_request){
		.lu = lu,
		.cmd = cmd,
		.step = tombolo_tgt_step_good,
	};
	INIT_LIST_HEAD(&request->reply_link);
	return request;
}

/* ---- range locks ---- */

static bool conflict(const struct tombolo_tgt_request *a, const struct tombolo_tgt_request *b)
{
	return (a->exclusive || b->exclusive) && a->changes_data && b->changes_data &&
	       a->begin < b->end && b->begin < a->end;
}

/* Looks at the requests in `list` up to, not including, `request`. */
static bool conflicts_in(const struct tombolo_tgt_request *request, struct list_head *list)
{
	struct tombolo_tgt_request *earlier;

	list_for_each_entry(earlier, list, link) {
		if (earlier == request)
			return false;
		if (conflict(earlier, request))
			return true;
	}
	return false;
}

static void start_waiting(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_request *request, *next;

	list_for_each_entry_safe(request, next, &lu->waiting, link) {
		if (conflicts_in(request, &lu->active) || conflicts_in(request, &lu->waiting))
			continue;
		list_del(&request->link);
		list_add_tail(&request->link, &lu->active);
		tombolo_tgt_request_issue(request);
	}
}

/* ---- issuing ---- */

static void reply(struct tombolo_tgt_request *request, int error)
{
	request->error = error;
	list_add_tail(&request->reply_link, &request->lu->replied);
}

/* libnbd's completion callback.  A lost connection is no answer: the request stays
 * active and not issued. */
static int on_completion(void *user_data, int *error)
{
	struct tombolo_tgt_request *request = user_data;

	struct tombolo_tgt_connection *connection = &request->lu->connection;

	request->issued = false;
	connection->issued_count--;
	if (*error == 0) {
		/* Only now: a server that accepts and hangs up does not deserve haste. */
		connection->backoff_ms = TOMBOLO_TGT_BACKOFF_MIN_MS;
		connection->failure_logged = false;
		tombolo_tgt_loss_on_done(request);
	}
	if (*error != ENOTCONN)
		reply(request, *error);
	return 1;
}

static uint32_t part_bytes(const struct tombolo_tgt_request *request, uint32_t limit)
{
	return request->remaining_bytes < limit ? (uint32_t)request->remaining_bytes : limit;
}

/* The operations that this server does not have and that need no answer from it. */
static bool is_void(const struct tombolo_tgt_request *request, const struct tombolo_tgt_connection *connection)
{
	switch (request->operation) {
	case TOMBOLO_TGT_NONE:
		return true;
	case TOMBOLO_TGT_FLUSH:
		return !connection->can_flush;
	case TOMBOLO_TGT_CACHE:
		return !connection->can_cache;
	case TOMBOLO_TGT_READ:
	case TOMBOLO_TGT_WRITE:
	case TOMBOLO_TGT_ZERO:
	case TOMBOLO_TGT_BLOCK_STATUS:
		break;
	}
	return false;
}

static int64_t send_to_server(struct tombolo_tgt_request *request, const struct tombolo_tgt_connection *connection)
{
	struct nbd_handle *nbd = connection->nbd;
	const nbd_completion_callback completion = { .callback = on_completion, .user_data = request };
	const nbd_extent_callback extent = { .callback = tombolo_tgt_on_extents, .user_data = request };
	uint32_t flags = request->fua && connection->can_fua ? LIBNBD_CMD_FLAG_FUA : 0;

	switch (request->operation) {
	case TOMBOLO_TGT_READ:
		request->issued_bytes = part_bytes(request, connection->payload_bytes_max);
		return nbd_aio_pread(nbd, request->buffer, request->issued_bytes, request->offset, completion, 0);
	case TOMBOLO_TGT_WRITE:
		request->may_have_written = true;
		request->issued_bytes = part_bytes(request, connection->payload_bytes_max);
		return nbd_aio_pwrite(nbd, request->buffer, request->issued_bytes, request->offset, completion, flags);
	case TOMBOLO_TGT_ZERO:
		request->may_have_written = true;
		if (connection->can_zero) {
			request->issued_bytes = part_bytes(request, ZERO_BYTES_MAX);
			return nbd_aio_zero(nbd, request->issued_bytes, request->offset, completion, flags);
		}
		request->issued_bytes = part_bytes(request, sizeof(zeroes));
		return nbd_aio_pwrite(nbd, zeroes, request->issued_bytes, request->offset, completion, flags);
	case TOMBOLO_TGT_FLUSH:
		request->issued_bytes = 0;
		return nbd_aio_flush(nbd, completion, 0);
	case TOMBOLO_TGT_CACHE:
		request->issued_bytes = part_bytes(request, ZERO_BYTES_MAX);
		return nbd_aio_cache(nbd, request->issued_bytes, request->offset, completion, 0);
	case TOMBOLO_TGT_BLOCK_STATUS:
		request->index = 0;
		request->issued_bytes = part_bytes(request, ZERO_BYTES_MAX);
		return nbd_aio_block_status(nbd, request->issued_bytes, request->offset, extent, completion, 0);
	case TOMBOLO_TGT_NONE:
		break;
	}
	return -1;
}

void tombolo_tgt_request_issue(struct tombolo_tgt_request *request)
{
	struct tombolo_tgt_lu *lu = request->lu;
	struct tombolo_tgt_connection *connection = &lu->connection;

	if (is_void(request, connection)) {
		request->issued_bytes = part_bytes(request, UINT32_MAX);
		reply(request, 0);
		tombolo_tgt_run_soon(lu);
		return;
	}
	if (connection->state != TOMBOLO_TGT_READY) {
		if (request->hold_until_ms == 0)
			request->hold_until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_HOLD_MS;
		return;
	}
	if (request->offset > connection->size_bytes ||
	    request->remaining_bytes > connection->size_bytes - request->offset) {
		reply(request, ERANGE);
		tombolo_tgt_run_soon(lu);
		return;
	}

	/* Set before the call: if the connection breaks in it, on_completion() has run
	 * when it returns. */
	request->issued = true;
	connection->issued_count++;
	tombolo_tgt_loss_on_issue(request);
	if (send_to_server(request, connection) == -1) {
		int error = nbd_get_errno();

		request->issued = false;
		connection->issued_count--;
		if (error != ENOTCONN && !nbd_aio_is_dead(connection->nbd))
			reply(request, error ? error : EIO);
		tombolo_tgt_run_soon(lu);
		return;
	}
	tombolo_tgt_connection_update_events(connection);
	/* Sending may have taken in replies to others, or found the connection broken. */
	if (!list_empty(&lu->replied) || !request->issued)
		tombolo_tgt_run_soon(lu);
}

void tombolo_tgt_request_submit(struct tombolo_tgt_request *request)
{
	struct tombolo_tgt_lu *lu = request->lu;

	lu->request_count++;
	if (request->exclusive)
		lu->exclusive_count++;
	if (lu->exclusive_count > 0 && request->changes_data &&
	    (conflicts_in(request, &lu->active) || conflicts_in(request, &lu->waiting))) {
		if (lu->connection.state != TOMBOLO_TGT_READY)
			request->hold_until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_HOLD_MS;
		list_add_tail(&request->link, &lu->waiting);
		return;
	}
	list_add_tail(&request->link, &lu->active);
	tombolo_tgt_request_issue(request);
}

/* ---- ending ---- */

void tombolo_tgt_request_finish(struct tombolo_tgt_request *request, int status)
{
	struct tombolo_tgt_lu *lu = request->lu;
	struct scsi_cmd *cmd = request->cmd;

	list_del(&request->link);
	list_del_init(&request->reply_link);
	lu->request_count--;
	if (request->exclusive)
		lu->exclusive_count--;
	free(request->scratch);
	list_add(&request->link, &lu->unused);
	if (!list_empty(&lu->waiting))
		start_waiting(lu);

	/* Without data there must be no Data-In before the status. */
	if (status != SAM_STAT_GOOD)
		scsi_set_in_resid_by_actual(cmd, 0);
	/* May submit commands that tgtd had queued behind this one. */
	target_cmd_io_done(cmd, status);
}

void tombolo_tgt_request_fail(struct tombolo_tgt_request *request, uint8_t key, uint16_t asc)
{
	sense_data_build(request->cmd, key, asc);
	tombolo_tgt_request_finish(request, SAM_STAT_CHECK_CONDITION);
}

void tombolo_tgt_step_good(struct tombolo_tgt_request *request)
{
	tombolo_tgt_request_finish(request, SAM_STAT_GOOD);
}

static void step_answer(struct tombolo_tgt_request *request)
{
	tombolo_tgt_request_finish(request, request->status);
}

void tombolo_tgt_request_answer(struct tombolo_tgt_request *request, int status)
{
	request->status = status;
	request->operation = TOMBOLO_TGT_NONE;
	request->step = step_answer;
	request->exclusive = request->changes_data = false;
	tombolo_tgt_request_submit(request);
}

void tombolo_tgt_request_refuse(struct tombolo_tgt_request *request, uint8_t key, uint16_t asc)
{
	sense_data_build(request->cmd, key, asc);
	scsi_set_out_resid_by_actual(request->cmd, 0);
	tombolo_tgt_request_answer(request, SAM_STAT_CHECK_CONDITION);
}

/* ---- replies ---- */

static void on_error(struct tombolo_tgt_request *request)
{
	bool writing = request->operation != TOMBOLO_TGT_READ && request->operation != TOMBOLO_TGT_BLOCK_STATUS;
	struct tombolo_tgt_outcome outcome = tombolo_tgt_outcome_of(request->error, writing);

	if (request->error == ESHUTDOWN) {
		/* Not done and not refused: the next server will do it. */
		tombolo_tgt_connection_drain(request->lu);
		tombolo_tgt_request_issue(request);
	} else if (outcome.status == SAM_STAT_CHECK_CONDITION) {
		tombolo_tgt_request_fail(request, outcome.key, outcome.asc);
	} else {
		tombolo_tgt_request_finish(request, outcome.status);
	}
}

static void on_reply(struct tombolo_tgt_request *request)
{
	if (request->error) {
		on_error(request);
		return;
	}
	if (tombolo_tgt_loss_is_due(request)) {
		request->lu->loss.is_untold = false;
		tombolo_tgt_request_fail(request, MEDIUM_ERROR, ASC_WRITE_ERROR);
		return;
	}
	/* Block status is asked once: the server may describe less than was asked for. */
	if (request->operation != TOMBOLO_TGT_BLOCK_STATUS) {
		request->offset += request->issued_bytes;
		request->remaining_bytes -= request->issued_bytes;
		if (request->buffer)
			request->buffer += request->issued_bytes;
		if (request->remaining_bytes > 0) {
			tombolo_tgt_request_issue(request);
			return;
		}
	}
	request->step(request);
}

void tombolo_tgt_run(struct tombolo_tgt_lu *lu)
{
	do {
		while (!list_empty(&lu->replied)) {
			struct tombolo_tgt_request *request =
				list_first_entry(&lu->replied, struct tombolo_tgt_request, reply_link);

			list_del_init(&request->reply_link);
			on_reply(request);
		}
		while (!list_empty(&lu->refused)) {
			struct scsi_cmd *cmd = list_first_entry(&lu->refused, struct scsi_cmd, bs_list);

			list_del(&cmd->bs_list);
			scsi_set_in_resid_by_actual(cmd, 0);
			target_cmd_io_done(cmd, SAM_STAT_TASK_SET_FULL);
		}
		tombolo_tgt_connection_check(lu);
	} while (!list_empty(&lu->replied) || !list_empty(&lu->refused));
	tombolo_tgt_connection_update_events(&lu->connection);
}

void tombolo_tgt_run_soon(struct tombolo_tgt_lu *lu)
{
	tgt_add_sched_event(&lu->run_event);
}

/* ---- the server comes and goes ---- */

void tombolo_tgt_requests_on_ready(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_request *request;

	list_for_each_entry(request, &lu->active, link) {
		if (!request->issued && list_empty(&request->reply_link))
			tombolo_tgt_request_issue(request);
	}
}

static void hold(struct list_head *list, uint64_t until_ms)
{
	struct tombolo_tgt_request *request;

	list_for_each_entry(request, list, link) {
		request->issued = false;
		if (request->hold_until_ms == 0)
			request->hold_until_ms = until_ms;
	}
}

void tombolo_tgt_requests_on_lost(struct tombolo_tgt_lu *lu)
{
	uint64_t until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_HOLD_MS;

	hold(&lu->active, until_ms);
	hold(&lu->waiting, until_ms);
}

/* The initiator retries after BUSY.  A COMPARE AND WRITE whose write may have been
 * done must not be retried blindly, it would find its own data and miscompare:
 * that one ends with ABORTED COMMAND, so that the initiator looks first. */
static void give_up(struct tombolo_tgt_request *request)
{
	if (request->cmd->scb[0] == COMPARE_AND_WRITE && request->may_have_written)
		tombolo_tgt_request_fail(request, ABORTED_COMMAND, TOMBOLO_TGT_ASC_LUN_COMMUNICATION_FAILURE);
	else
		tombolo_tgt_request_finish(request, SAM_STAT_BUSY);
}

static struct tombolo_tgt_request *find_expired(struct list_head *list, uint64_t now_ms)
{
	struct tombolo_tgt_request *request;

	list_for_each_entry(request, list, link) {
		if (request->issued || !list_empty(&request->reply_link))
			continue;
		/* tgtd waits for the end of an aborted command before it confirms. */
		if (request->cmd->mreq || (request->hold_until_ms != 0 && now_ms >= request->hold_until_ms))
			return request;
	}
	return NULL;
}

/* Searches anew after each: ending a request may start and add others. */
void tombolo_tgt_requests_expire(struct tombolo_tgt_lu *lu)
{
	uint64_t now_ms = tombolo_tgt_now_ms();
	struct tombolo_tgt_request *request;

	if (lu->connection.state == TOMBOLO_TGT_READY || lu->connection.state == TOMBOLO_TGT_CLOSED)
		return;
	while ((request = find_expired(&lu->active, now_ms)) || (request = find_expired(&lu->waiting, now_ms)))
		give_up(request);
}

void tombolo_tgt_requests_end_all(struct tombolo_tgt_lu *lu)
{
	while (!list_empty(&lu->waiting))
		give_up(list_first_entry(&lu->waiting, struct tombolo_tgt_request, link));
	while (!list_empty(&lu->active))
		give_up(list_first_entry(&lu->active, struct tombolo_tgt_request, link));
}
