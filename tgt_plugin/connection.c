/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One NBD connection per logical unit, driven by tgtd's epoll loop through
 * libnbd's asynchronous interface.  No thread, and nothing blocks but the first
 * connection in bs_open, where tgtd wants the size.
 *
 * Owns the handle, the watched socket, the timer, and the states drawn in
 * tgt_plugin.h.  Does not own requests: it tells request.c when the server came
 * and went.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "tgt_plugin.h"

/* A server that knows this context breaks the connection when the size of the
 * export changes, so that the client comes back and reads the new one. */
#define RESIZE_CONTEXT "x-tombolo:resize"

/* Payload of one request, if the server does not name its limit: what every server
 * must take according to the NBD protocol. */
#define PAYLOAD_BYTES_DEFAULT (32u << 20)

/* Replies taken in one turn of the event loop, in fairness to other logical units. */
#define REPLIES_PER_TURN_MAX 64

uint64_t tombolo_tgt_now_ms(void)
{
	struct timespec now = { 0, 0 };

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void set_tick(const struct tombolo_tgt_connection *connection, bool on)
{
	const struct timespec period = { 0, on ? TOMBOLO_TGT_TICK_MS * 1000000L : 0 };
	const struct itimerspec timer = { period, period };

	if (timerfd_settime(connection->timer_fd, 0, &timer, NULL) == -1)
		eprintf("timerfd_settime: %m\n");
}

/* ---- watching the socket ---- */

static void on_socket(int fd, int events, void *data);

static void unwatch(struct tombolo_tgt_connection *connection)
{
	if (connection->watched_fd == -1)
		return;
	tgt_event_del(connection->watched_fd);
	close(connection->watched_fd);
	connection->watched_fd = -1;
	connection->nbd_fd = -1;
}

static int wanted_events(struct nbd_handle *nbd)
{
	unsigned int direction = nbd_aio_get_direction(nbd);

	return (direction & LIBNBD_AIO_DIRECTION_READ ? EPOLLIN : 0) |
	       (direction & LIBNBD_AIO_DIRECTION_WRITE ? EPOLLOUT : 0);
}

/* libnbd moves to another socket when "localhost" has two addresses. */
static int watch(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;
	int nbd_fd = nbd_aio_get_fd(connection->nbd);

	if (nbd_fd == -1)
		return -1;
	if (nbd_fd == connection->nbd_fd)
		return 0;
	unwatch(connection);
	connection->watched_fd = fcntl(nbd_fd, F_DUPFD_CLOEXEC, 0);
	if (connection->watched_fd == -1)
		return -1;
	connection->nbd_fd = nbd_fd;
	connection->events = wanted_events(connection->nbd);
	if (tgt_event_add(connection->watched_fd, connection->events, on_socket, lu)) {
		close(connection->watched_fd);
		connection->watched_fd = -1;
		connection->nbd_fd = -1;
		return -1;
	}
	return 0;
}

void tombolo_tgt_connection_update_events(struct tombolo_tgt_connection *connection)
{
	int events;

	if (connection->watched_fd == -1)
		return;
	events = wanted_events(connection->nbd);
	/* 0 is a dead handle: tombolo_tgt_connection_check() will see it. */
	if (events == connection->events || events == 0)
		return;
	if (tgt_event_modify(connection->watched_fd, events) == 0)
		connection->events = events;
}

/* ---- setting up ---- */

static void note_failure(struct tombolo_tgt_connection *connection, const char *text)
{
	snprintf(connection->failure, sizeof(connection->failure), "%s", text ? text : "no reason given");
}

/* Creates a handle and starts the handshake.  -1: noted in connection->failure. */
static int begin(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;
	const struct tombolo_tgt_address *address = &lu->address;
	struct nbd_handle *nbd = nbd_create();

	connection->nbd = nbd;
	if (!nbd ||
	    nbd_add_meta_context(nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
	    nbd_add_meta_context(nbd, RESIZE_CONTEXT) == -1 ||
	    /* The description too, for loss.c. */
	    nbd_set_full_info(nbd, true) == -1 ||
	    /* A read that fails is never shown to the initiator: no need to clear. */
	    nbd_set_pread_initialize(nbd, false) == -1 ||
	    nbd_set_uri_allow_transports(nbd, LIBNBD_ALLOW_TRANSPORT_TCP | LIBNBD_ALLOW_TRANSPORT_UNIX) == -1 ||
	    nbd_set_uri_allow_tls(nbd, LIBNBD_TLS_DISABLE) == -1 ||
	    (address->uri ? nbd_aio_connect_uri(nbd, address->uri) == -1 :
			    (nbd_set_export_name(nbd, address->export_name) == -1 ||
			     nbd_aio_connect_unix(nbd, address->socket_path) == -1))) {
		note_failure(connection, nbd_get_error());
		nbd_close(nbd);
		connection->nbd = NULL;
		return -1;
	}
	return 0;
}

static void learn_description(struct tombolo_tgt_lu *lu)
{
	char *description = nbd_get_export_description(lu->connection.nbd);

	/* NULL: the server has given none. */
	if (description)
		tombolo_tgt_loss_on_connected(lu, description);
	free(description);
}

/* Reads what the handshake settled.  -1: the export cannot be used. */
static int learn(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;
	struct nbd_handle *nbd = connection->nbd;
	uint32_t block_bytes = 1u << lu->scsi_lu->blk_shift;
	int64_t size = nbd_get_size(nbd);
	int64_t minimum = nbd_get_block_size(nbd, LIBNBD_SIZE_MINIMUM);
	int64_t preferred = nbd_get_block_size(nbd, LIBNBD_SIZE_PREFERRED);
	int64_t maximum = nbd_get_block_size(nbd, LIBNBD_SIZE_MAXIMUM);

	if (size < (int64_t)block_bytes) {
		note_failure(connection, "the export is smaller than one block");
		return -1;
	}
	if (minimum > (int64_t)block_bytes) {
		note_failure(connection, "the server's smallest block is larger than the logical block; set --blocksize");
		return -1;
	}
	connection->size_bytes = (uint64_t)size;
	connection->preferred_block_bytes = preferred > 0 && preferred <= INT32_MAX ? (uint32_t)preferred : 0;
	connection->payload_bytes_max = PAYLOAD_BYTES_DEFAULT;
	if (maximum >= (int64_t)block_bytes && maximum < PAYLOAD_BYTES_DEFAULT)
		connection->payload_bytes_max = (uint32_t)maximum & ~(block_bytes - 1);
	connection->can_flush = nbd_can_flush(nbd) == 1;
	connection->can_fua = nbd_can_fua(nbd) == 1;
	connection->can_zero = nbd_can_zero(nbd) == 1;
	connection->can_cache = nbd_can_cache(nbd) == 1;
	connection->can_block_status = nbd_can_meta_context(nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == 1;
	connection->read_only = nbd_is_read_only(nbd) == 1;
	learn_description(lu);
	return 0;
}

static void disconnect(struct tombolo_tgt_connection *connection)
{
	unwatch(connection);
	nbd_close(connection->nbd);
	connection->nbd = NULL;
	connection->issued_count = 0;
}

/* ---- transitions ---- */

static void back_off(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	disconnect(connection);
	if (!connection->failure_logged)
		eprintf("%s: no NBD server (%s); commands are held, reconnecting\n", lu->scsi_lu->path,
			connection->failure);
	connection->failure_logged = true;
	connection->state = TOMBOLO_TGT_BACKOFF;
	connection->state_until_ms = tombolo_tgt_now_ms() + connection->backoff_ms;
	connection->backoff_ms *= 2;
	if (connection->backoff_ms > TOMBOLO_TGT_BACKOFF_MAX_MS)
		connection->backoff_ms = TOMBOLO_TGT_BACKOFF_MAX_MS;
	set_tick(connection, true);
	tombolo_tgt_requests_on_lost(lu);
}

static void reconnect(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	connection->state = TOMBOLO_TGT_CONNECTING;
	connection->state_until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_CONNECT_MS;
	if (begin(lu) == -1 || watch(lu) == -1)
		back_off(lu);
}

/* Also finds out whether the export was resized while we were away. */
static void become_ready(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;
	struct scsi_lu *scsi_lu = lu->scsi_lu;

	if (learn(lu) == -1) {
		back_off(lu);
		return;
	}
	connection->state = TOMBOLO_TGT_READY;
	*connection->failure = '\0';
	set_tick(connection, false);
	eprintf("%s: NBD server is back, %u commands were held\n", scsi_lu->path, lu->request_count);
	if (scsi_lu->size != connection->size_bytes) {
		eprintf("%s: size changed from %" PRIu64 " to %" PRIu64 "\n", scsi_lu->path, scsi_lu->size,
			connection->size_bytes);
		scsi_lu->size = connection->size_bytes;
		/* No nexus has the id 0: all of them are told. */
		ua_sense_add_other_it_nexus(0, scsi_lu, TOMBOLO_TGT_ASC_CAPACITY_DATA_HAS_CHANGED);
	}
	tombolo_tgt_requests_on_ready(lu);
}

void tombolo_tgt_connection_drain(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	if (connection->state != TOMBOLO_TGT_READY)
		return;
	connection->state = TOMBOLO_TGT_DRAINING;
	connection->state_until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_CONNECT_MS;
	note_failure(connection, "the server is shutting down");
	set_tick(connection, true);
}

void tombolo_tgt_connection_check(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	if (connection->nbd && (nbd_aio_is_dead(connection->nbd) || nbd_aio_is_closed(connection->nbd))) {
		if (!*connection->failure)
			note_failure(connection, "the server closed the connection");
		back_off(lu);
		return;
	}
	switch (connection->state) {
	case TOMBOLO_TGT_CONNECTING:
		if (nbd_aio_is_ready(connection->nbd)) {
			become_ready(lu);
		} else if (tombolo_tgt_now_ms() >= connection->state_until_ms) {
			note_failure(connection, "the handshake took too long");
			back_off(lu);
		} else if (watch(lu) == -1) {
			back_off(lu);
		}
		break;
	case TOMBOLO_TGT_BACKOFF:
		if (tombolo_tgt_now_ms() >= connection->state_until_ms)
			reconnect(lu);
		break;
	case TOMBOLO_TGT_DRAINING:
		if (connection->issued_count == 0 || tombolo_tgt_now_ms() >= connection->state_until_ms)
			back_off(lu);
		break;
	case TOMBOLO_TGT_CLOSED:
	case TOMBOLO_TGT_READY:
		break;
	}
}

/* ---- events ---- */

static void on_timer(int fd, int events, void *data)
{
	struct tombolo_tgt_lu *lu = data;
	uint64_t ticks;

	(void)events;
	if (read(fd, &ticks, sizeof(ticks)) != sizeof(ticks))
		return;
	tombolo_tgt_run(lu);
	tombolo_tgt_requests_expire(lu);
	tombolo_tgt_run(lu);
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

/* libnbd takes one reply per call.  While more have arrived, taking them at once is
 * cheaper than another turn of the event loop each.  libnbd must not be asked to
 * read when there is nothing: it then waits for a reply before it sends anything,
 * a request that is half sent included. */
static int notify(struct tombolo_tgt_connection *connection, int events)
{
	struct nbd_handle *nbd = connection->nbd;
	int wanted = wanted_events(nbd);

	if (!(wanted & EPOLLIN) || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return wanted & EPOLLOUT ? nbd_aio_notify_write(nbd) : 0;

	for (int i = 0; i < REPLIES_PER_TURN_MAX; i++) {
		if (nbd_aio_notify_read(nbd) == -1)
			return -1;
		if (connection->issued_count == 0 || !(wanted_events(nbd) & EPOLLIN) ||
		    !is_readable(connection->watched_fd))
			break;
	}
	return 0;
}

static void on_socket(int fd, int events, void *data)
{
	struct tombolo_tgt_lu *lu = data;
	struct tombolo_tgt_connection *connection = &lu->connection;

	(void)fd;
	if (!connection->nbd)
		return;
	if (notify(connection, events) == -1)
		note_failure(connection, nbd_get_error());
	tombolo_tgt_run(lu);
}

/* ---- opening and closing ---- */

static int wait_for_handshake(struct tombolo_tgt_connection *connection)
{
	uint64_t until_ms = tombolo_tgt_now_ms() + TOMBOLO_TGT_CONNECT_MS;

	while (!nbd_aio_is_ready(connection->nbd)) {
		uint64_t now_ms = tombolo_tgt_now_ms();

		if (now_ms >= until_ms) {
			note_failure(connection, "the handshake took too long");
			return -1;
		}
		if (nbd_poll(connection->nbd, (int)(until_ms - now_ms)) == -1) {
			note_failure(connection, nbd_get_error());
			return -1;
		}
	}
	return 0;
}

int tombolo_tgt_connection_open(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	connection->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (connection->timer_fd == -1)
		return -1;
	if (tgt_event_add(connection->timer_fd, EPOLLIN, on_timer, lu)) {
		close(connection->timer_fd);
		connection->timer_fd = -1;
		return -1;
	}
	if (begin(lu) == -1 || wait_for_handshake(connection) == -1 || learn(lu) == -1 || watch(lu) == -1) {
		tombolo_tgt_connection_close(lu);
		return -1;
	}
	connection->state = TOMBOLO_TGT_READY;
	connection->backoff_ms = TOMBOLO_TGT_BACKOFF_MIN_MS;
	connection->failure_logged = false;
	return 0;
}

void tombolo_tgt_connection_close(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_connection *connection = &lu->connection;

	connection->state = TOMBOLO_TGT_CLOSED;
	if (connection->nbd && nbd_aio_is_ready(connection->nbd))
		nbd_aio_disconnect(connection->nbd, 0);
	disconnect(connection);
	if (connection->timer_fd != -1) {
		tgt_event_del(connection->timer_fd);
		close(connection->timer_fd);
		connection->timer_fd = -1;
	}
}
