/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes that the server had answered and then lost, before a flush made them safe.
 *
 * The server's description of an export may end with ", generation " and 16 hex digits.
 * A server that comes back with another number has started without all that it had
 * answered (docs/SEMANTICS.md).  If the unit had writes then that no flush had covered,
 * the next SYNCHRONIZE CACHE or write with FUA ends with MEDIUM ERROR: its initiator
 * must not believe that they are safe.  Once, for they are gone and will not be safe
 * later either.  All initiators get the unit attention of a reset, which is what a disk
 * with a volatile cache says when it had lost power; but many of them take no notice.
 *
 * If the first half of the number differs too, what was flushed may be lost as well, as
 * after a recovery of what the store had.  Then it does not matter what was flushed.
 *
 * A description, and not a meta context: libnbd can only be asked for contexts by name.
 */

#include <inttypes.h>
#include <string.h>

#include "tgt_plugin.h"

#define MARKER ", generation "
#define DIGITS 16
#define HISTORY_SHIFT 32

/* 0: the description names none. */
static uint64_t generation_in(const char *description)
{
	size_t bytes = strlen(description), tail_bytes = strlen(MARKER) + DIGITS;
	const char *tail;

	if (bytes < tail_bytes)
		return 0;
	tail = description + bytes - tail_bytes;
	if (strncmp(tail, MARKER, strlen(MARKER)) != 0)
		return 0;
	tail += strlen(MARKER);
	return strspn(tail, "0123456789abcdef") == DIGITS ? strtoull(tail, NULL, 16) : 0;
}

void tombolo_tgt_loss_on_connected(struct tombolo_tgt_lu *lu, const char *description)
{
	struct tombolo_tgt_loss *loss = &lu->loss;
	uint64_t before = loss->generation;
	uint64_t now = generation_in(description);
	bool flushed_is_lost;

	if (now == 0)
		return;
	loss->generation = now;
	flushed_is_lost = before >> HISTORY_SHIFT != now >> HISTORY_SHIFT;
	if (before == 0 || before == now || (loss->written == loss->flushed && !flushed_is_lost))
		return;
	loss->flushed = loss->written;
	loss->is_untold = true;
	eprintf("%s: the server has lost writes that it had answered%s; the next flush fails\n", lu->scsi_lu->path,
		flushed_is_lost ? ", perhaps flushed ones too" : " and not flushed");
	/* No nexus has the id 0: all of them are told. */
	ua_sense_add_other_it_nexus(0, lu->scsi_lu, TOMBOLO_TGT_ASC_POWER_ON_OCCURRED);
}

static bool is_write(const struct tombolo_tgt_request *request)
{
	return request->operation == TOMBOLO_TGT_WRITE || request->operation == TOMBOLO_TGT_ZERO;
}

void tombolo_tgt_loss_on_issue(struct tombolo_tgt_request *request)
{
	request->covers_writes = request->lu->loss.written;
}

void tombolo_tgt_loss_on_done(struct tombolo_tgt_request *request)
{
	struct tombolo_tgt_loss *loss = &request->lu->loss;

	if (is_write(request) && !(request->fua && request->lu->connection.can_fua))
		loss->written++;
	else if (request->operation == TOMBOLO_TGT_FLUSH && loss->flushed < request->covers_writes)
		loss->flushed = request->covers_writes;
}

bool tombolo_tgt_loss_is_due(const struct tombolo_tgt_request *request)
{
	return request->lu->loss.is_untold &&
	       (request->operation == TOMBOLO_TGT_FLUSH || (is_write(request) && request->fua));
}
