/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bs_tombolo: a backing store of tgtd that forwards SCSI block commands to an
 * NBD server over a local socket.
 *
 *   address.c     the text after "-b": which socket, which export
 *   connection.c  one NBD connection per logical unit in tgtd's epoll loop
 *   request.c     commands under way: order, range locks, re-issue, time limits
 *   command.c     READ, WRITE, VERIFY, WRITE SAME, COMPARE AND WRITE, ...
 *   unmap.c       UNMAP
 *   lba_status.c  GET LBA STATUS
 *   sense.c       NBD errors as SCSI status and sense
 *   loss.c        writes that the server has lost before they were flushed
 *   plugin.c      the callback table and what a logical unit reports of itself
 *
 * Everything runs on tgtd's one thread.  Three rules follow from tgtd and libnbd:
 *
 * - A command is never completed inside bs_cmd_submit(): tgtd still uses it after
 *   that returns.  Such results go to the list `replied` and are handed over from
 *   the event loop.
 * - libnbd's callbacks run under the lock of the handle, so they only record the
 *   reply; tombolo_tgt_run() acts on it after libnbd has returned.
 * - tgtd frees an asynchronous command only after target_cmd_io_done(), also when
 *   the command is aborted or its initiator is gone.  So each request completes
 *   its command exactly once, and nothing else has to be tracked.
 */

#ifndef TOMBOLO_TGT_PLUGIN_H
#define TOMBOLO_TGT_PLUGIN_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>	/* before log.h of tgt, which makes dprintf a macro */
#include <stdlib.h>
#include <string.h>

#include <libnbd.h>

#include "list.h"
#include "tgtd.h"
#include "scsi.h"

/* A first connection has this long, because tgtd waits for it; so has each later
 * handshake, and a server that announced its shutdown, before it is given up. */
#define TOMBOLO_TGT_CONNECT_MS 5000

/* Pause between attempts to reconnect: doubled from the first to the second. */
#define TOMBOLO_TGT_BACKOFF_MIN_MS 100
#define TOMBOLO_TGT_BACKOFF_MAX_MS 2000

/* The longest time a command is held without a server.  Initiators give a command
 * 30 s or more before they abort it, and a BUSY before that makes them retry. */
#define TOMBOLO_TGT_HOLD_MS 20000

/* While there is no server, time limits are looked at this often. */
#define TOMBOLO_TGT_TICK_MS 100

/* Requests of one logical unit; above it the answer is TASK SET FULL.
 * Eight sessions with tgtd's default queue depth of 128. */
#define TOMBOLO_TGT_REQUESTS_MAX 1024

/* Data moved through a buffer of our own (comparisons, patterns) goes in pieces of
 * this size, so that TOMBOLO_TGT_REQUESTS_MAX requests need at most 256 MiB. */
#define TOMBOLO_TGT_SCRATCH_BYTES (256u * 1024)

/* Reported as MAXIMUM COMPARE AND WRITE LENGTH by tgtd, and enforced here. */
#define TOMBOLO_TGT_COMPARE_AND_WRITE_BLOCKS_MAX 128

/* An UNMAP parameter list is limited to 64 KiB by its CDB; this many descriptors
 * are reported in the Block Limits page and accepted. */
#define TOMBOLO_TGT_UNMAP_DESCRIPTORS_MAX 256

/* Physical blocks, and the granularity of allocation: the gateway's block size. */
#define TOMBOLO_TGT_PHYSICAL_BLOCK_BYTES 4096

/* Additional sense codes that tgt's scsi.h does not name. */
#define TOMBOLO_TGT_ASC_LUN_COMMUNICATION_FAILURE 0x0800
#define TOMBOLO_TGT_ASC_SPACE_ALLOCATION_FAILED 0x2707
#define TOMBOLO_TGT_ASC_POWER_ON_OCCURRED 0x2901
#define TOMBOLO_TGT_ASC_CAPACITY_DATA_HAS_CHANGED 0x2a09

/* Big-endian fields of CDBs and parameter lists.  tgt's own functions shift into
 * the sign bit. */
static inline uint32_t tombolo_tgt_be32(const uint8_t *field)
{
	uint32_t value;

	memcpy(&value, field, sizeof(value));
	return be32toh(value);
}

static inline uint64_t tombolo_tgt_be64(const uint8_t *field)
{
	uint64_t value;

	memcpy(&value, field, sizeof(value));
	return be64toh(value);
}

struct tombolo_tgt_lu;

/* ---- address.c ---- */

struct tombolo_tgt_address {
	char *uri;		/* NULL: socket_path and export_name are set */
	char *socket_path;
	char *export_name;
};

/* Returns 0, or -1 with the reason in *reason (a constant). */
int tombolo_tgt_address_parse(struct tombolo_tgt_address *address, const char *text, const char **reason);
void tombolo_tgt_address_free(struct tombolo_tgt_address *address);

/* ---- connection.c ---- */

/*
 *            bs_open            handshake done          ESHUTDOWN
 *  CLOSED -------------> CONNECTING ----------> READY -----------> DRAINING
 *                         ^      |                |                   |
 *            pause is over |      | failed, late   | lost              | last reply, or late
 *                         BACKOFF <---------------+-------------------+
 *
 * bs_close leads from every state to CLOSED.  Requests are issued in READY only.
 */
enum tombolo_tgt_state {
	TOMBOLO_TGT_CLOSED = 0,
	TOMBOLO_TGT_BACKOFF,
	TOMBOLO_TGT_CONNECTING,
	TOMBOLO_TGT_READY,
	TOMBOLO_TGT_DRAINING,
};

struct tombolo_tgt_connection {
	enum tombolo_tgt_state state;
	struct nbd_handle *nbd;	/* NULL in CLOSED and BACKOFF */

	/* A duplicate of libnbd's socket, so that its number cannot be taken by another
	 * connection of tgtd between libnbd's close and ours.  -1: not watched. */
	int watched_fd;
	int nbd_fd;		/* the socket of which watched_fd is a duplicate */
	int events;		/* what watched_fd waits for in epoll */

	int timer_fd;		/* ticks in every state but CLOSED and READY */
	uint64_t state_until_ms;	/* end of the pause, the handshake or the draining */
	uint32_t backoff_ms;	/* the next pause; back to the first after a good reply */
	bool failure_logged;	/* since the last good reply */
	char failure[160];	/* libnbd's account of the last failure */

	unsigned int issued_count;	/* NBD requests without a reply */

	/* What the server said in the last handshake. */
	uint64_t size_bytes;
	uint32_t payload_bytes_max;
	uint32_t preferred_block_bytes;
	bool can_flush, can_fua, can_zero, can_cache, can_block_status, read_only;
};

/* Blocks tgtd for TOMBOLO_TGT_CONNECT_MS at most.  Returns 0 or -1, logged. */
int tombolo_tgt_connection_open(struct tombolo_tgt_lu *lu);
void tombolo_tgt_connection_close(struct tombolo_tgt_lu *lu);

/* Brings the state up to date after libnbd ran or time has passed. */
void tombolo_tgt_connection_check(struct tombolo_tgt_lu *lu);
/* Stops issuing until the server is gone and a new one answers. */
void tombolo_tgt_connection_drain(struct tombolo_tgt_lu *lu);
/* Tells epoll what libnbd waits for; to be called after each libnbd call. */
void tombolo_tgt_connection_update_events(struct tombolo_tgt_connection *connection);

uint64_t tombolo_tgt_now_ms(void);

/* ---- request.c ---- */

enum tombolo_tgt_operation {
	TOMBOLO_TGT_NONE = 0,	/* no NBD request: the step runs from the event loop */
	TOMBOLO_TGT_READ,
	TOMBOLO_TGT_WRITE,
	TOMBOLO_TGT_ZERO,
	TOMBOLO_TGT_FLUSH,
	TOMBOLO_TGT_CACHE,
	TOMBOLO_TGT_BLOCK_STATUS,
};

/*
 * One SCSI command under way.  At any moment it has at most one operation, which
 * is idempotent; request.c splits it to the server's limits, issues it again
 * after a lost connection, and runs `step` when all of it is done.  A step sets
 * the next operation or finishes the request.
 */
struct tombolo_tgt_request {
	struct list_head link;	/* in lu->active, lu->waiting or lu->unused */
	struct list_head reply_link;	/* in lu->replied, else empty */
	struct tombolo_tgt_lu *lu;
	struct scsi_cmd *cmd;
	void (*step)(struct tombolo_tgt_request *request);

	enum tombolo_tgt_operation operation;
	uint64_t offset;	/* next byte to transfer */
	uint64_t remaining_bytes;	/* of the operation, the issued part included */
	uint8_t *buffer;	/* for `offset`; READ and WRITE only */
	uint32_t issued_bytes;	/* length of the part under way */
	bool issued;
	bool fua;
	bool may_have_written;	/* a write or zero operation has been issued once */
	int error;		/* the server's answer to the last part */
	uint64_t covers_writes;	/* a FLUSH: so many writes of the unit had been answered when it was issued */

	/* [begin, end) in bytes.  Of two overlapping requests that change data, the later
	 * one waits if either is exclusive. */
	uint64_t begin, end;
	bool changes_data;
	bool exclusive;

	uint64_t hold_until_ms;	/* 0: has always had a server */
	int status;		/* of tombolo_tgt_request_answer() */

	/* For the steps of command.c, unmap.c and lba_status.c. */
	uint64_t position, total_bytes;	/* of work that is done piece by piece from `begin` */
	uint32_t period_bytes;	/* the data to compare with repeats after this */
	uint32_t index, count;	/* descriptors: the next or number so far, and all */
	bool compare;
	uint8_t *scratch;	/* freed with the request */
};

/* What the server may lose; see loss.c. */
struct tombolo_tgt_loss {
	uint64_t generation;	/* of the server; 0: it has named none */
	uint64_t written;	/* writes answered that need a flush to be safe */
	uint64_t flushed;	/* how many of them a flush has covered */
	bool is_untold;	/* some were lost, and no initiator has had the error yet */
};

struct tombolo_tgt_lu {
	struct scsi_lu *scsi_lu;
	char *export_option;	/* "export=" of --bsopts, or NULL */
	struct tombolo_tgt_address address;
	struct tombolo_tgt_connection connection;
	struct tombolo_tgt_loss loss;

	struct list_head active;	/* started, in this order; they hold their range */
	struct list_head waiting;	/* for an overlapping request to end */
	struct list_head replied;	/* with a result for the next tombolo_tgt_run() */
	struct list_head refused;	/* commands for which there was no request */
	struct list_head unused;
	unsigned int request_count;	/* in active and waiting */
	unsigned int exclusive_count;

	struct event_data run_event;	/* runs tombolo_tgt_run() from the event loop */
};

struct tombolo_tgt_lu *tombolo_tgt_lu_of(struct scsi_lu *scsi_lu);
bool tombolo_tgt_is_write_through(struct scsi_lu *scsi_lu);

void tombolo_tgt_requests_init(struct tombolo_tgt_lu *lu);
void tombolo_tgt_requests_exit(struct tombolo_tgt_lu *lu);

/* Marks the command asynchronous.  NULL: the limit is reached, and the command
 * will be answered with TASK SET FULL. */
struct tombolo_tgt_request *tombolo_tgt_request_new(struct tombolo_tgt_lu *lu, struct scsi_cmd *cmd);
/* Starts the operation set in the request, or makes it wait for its range. */
void tombolo_tgt_request_submit(struct tombolo_tgt_request *request);
/* Instead of submit: the command ends with this status ... */
void tombolo_tgt_request_answer(struct tombolo_tgt_request *request, int status);
/* ... or with CHECK CONDITION and this sense. */
void tombolo_tgt_request_refuse(struct tombolo_tgt_request *request, uint8_t key, uint16_t asc);

/* In steps: the next operation ... */
void tombolo_tgt_request_issue(struct tombolo_tgt_request *request);
/* ... or the end of the request, which is released. */
void tombolo_tgt_request_finish(struct tombolo_tgt_request *request, int status);
void tombolo_tgt_request_fail(struct tombolo_tgt_request *request, uint8_t key, uint16_t asc);
void tombolo_tgt_step_good(struct tombolo_tgt_request *request);

/* For connection.c. */
void tombolo_tgt_requests_on_ready(struct tombolo_tgt_lu *lu);
void tombolo_tgt_requests_on_lost(struct tombolo_tgt_lu *lu);
void tombolo_tgt_requests_expire(struct tombolo_tgt_lu *lu);
void tombolo_tgt_requests_end_all(struct tombolo_tgt_lu *lu);

/* Acts on everything that has happened; from the event loop only. */
void tombolo_tgt_run(struct tombolo_tgt_lu *lu);
void tombolo_tgt_run_soon(struct tombolo_tgt_lu *lu);

/* ---- command.c, unmap.c, lba_status.c ---- */

int tombolo_tgt_command_submit(struct scsi_cmd *cmd);
int tombolo_tgt_unmap(int host_no, struct scsi_cmd *cmd);
int tombolo_tgt_get_lba_status(int host_no, struct scsi_cmd *cmd);
int tombolo_tgt_on_extents(void *user_data, const char *context, uint64_t offset, uint32_t *entries,
			   size_t entry_count, int *error);

/* ---- loss.c ---- */

/* After each handshake. */
void tombolo_tgt_loss_on_connected(struct tombolo_tgt_lu *lu, const char *description);
/* Each part of an operation, when it is issued and when the server has done it. */
void tombolo_tgt_loss_on_issue(struct tombolo_tgt_request *request);
void tombolo_tgt_loss_on_done(struct tombolo_tgt_request *request);
/* Whether the operation, which has succeeded, must be told as a failure instead. */
bool tombolo_tgt_loss_is_due(const struct tombolo_tgt_request *request);

/* ---- sense.c ---- */

struct tombolo_tgt_outcome {
	int status;
	uint8_t key;
	uint16_t asc;
};

struct tombolo_tgt_outcome tombolo_tgt_outcome_of(int error, bool writing);

#endif
