/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * GET LBA STATUS from the server's base:allocation, in place of tgtd's handler,
 * which looks for holes in a file that does not exist here.
 *
 * A block is reported deallocated if all of it is a hole that reads as zeroes;
 * neighbours of equal status are merged.  One NBD request per command: SBC-3 lets
 * the target describe less than the rest of the medium, and the initiator asks
 * again from there.
 */

#include "tgt_plugin.h"
#include "util.h"

#define HEADER_BYTES 8
#define DESCRIPTOR_BYTES 16
#define DESCRIPTORS_MAX 256

#define MAPPED 0
#define DEALLOCATED 1

struct range {
	uint64_t lba;
	uint64_t blocks;
	uint8_t status;
};

static void append(struct tombolo_tgt_request *request, uint64_t end_lba, uint8_t status)
{
	struct range *ranges = (struct range *)(void *)request->scratch;
	struct range *last = request->index > 0 ? &ranges[request->index - 1] : NULL;
	uint64_t lba = request->position;

	if (end_lba <= lba)
		return;
	if (last && last->status == status) {
		last->blocks += end_lba - lba;
	} else {
		if (request->index == request->count)
			return;
		ranges[request->index++] = (struct range){ lba, end_lba - lba, status };
	}
	request->position = end_lba;
}

/* libnbd's extent callback: `entries` are pairs of length and flags. */
int tombolo_tgt_on_extents(void *user_data, const char *context, uint64_t offset, uint32_t *entries,
			   size_t entry_count, int *error)
{
	const uint32_t hole = LIBNBD_STATE_HOLE | LIBNBD_STATE_ZERO;
	struct tombolo_tgt_request *request = user_data;
	unsigned int shift = request->lu->scsi_lu->blk_shift;
	uint64_t blocks_max = request->lu->scsi_lu->size >> shift;
	uint64_t block_mask = (1u << shift) - 1;

	(void)error;
	/* The other context is of no interest here. */
	if (strcmp(context, LIBNBD_CONTEXT_BASE_ALLOCATION) != 0)
		return 0;
	request->position = offset >> shift;
	for (size_t i = 0; i + 1 < entry_count; i += 2) {
		uint64_t end = offset + entries[i];
		uint64_t end_lba = (end + block_mask) >> shift;

		if ((entries[i + 1] & hole) == hole) {
			append(request, (offset + block_mask) >> shift, MAPPED);
			append(request, end >> shift, DEALLOCATED);
		} else {
			append(request, end_lba < blocks_max ? end_lba : blocks_max, MAPPED);
		}
		offset = end;
	}
	return 0;
}

static void encode(const struct range *range, uint8_t *descriptor)
{
	memset(descriptor, 0, DESCRIPTOR_BYTES);
	put_unaligned_be64(range->lba, descriptor);
	put_unaligned_be32(range->blocks < UINT32_MAX ? (uint32_t)range->blocks : UINT32_MAX, descriptor + 8);
	descriptor[12] = range->status;
}

static void step_report(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	const struct range *ranges = (const struct range *)(const void *)request->scratch;
	uint8_t *buffer = scsi_get_in_buffer(cmd);
	uint32_t room_bytes = tombolo_tgt_be32(&cmd->scb[10]);
	uint8_t part[DESCRIPTOR_BYTES] = { 0 };
	uint32_t bytes;

	/* A server without block status: everything up to the end is mapped. */
	if (request->index == 0) {
		request->position = request->begin;
		append(request, request->lu->scsi_lu->size >> request->lu->scsi_lu->blk_shift, MAPPED);
	}
	put_unaligned_be32(HEADER_BYTES - 4 + request->index * DESCRIPTOR_BYTES, part);
	bytes = (uint32_t)spc_memcpy(buffer, &room_bytes, part, HEADER_BYTES);
	for (uint32_t i = 0; i < request->index && room_bytes > 0; i++) {
		encode(&ranges[i], part);
		bytes += (uint32_t)spc_memcpy(buffer + bytes, &room_bytes, part, DESCRIPTOR_BYTES);
	}
	scsi_set_in_resid_by_actual(cmd, bytes);
	tombolo_tgt_request_finish(request, SAM_STAT_GOOD);
}

static void submit(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	struct scsi_lu *scsi_lu = request->lu->scsi_lu;
	uint64_t lba = tombolo_tgt_be64(&cmd->scb[2]);
	uint64_t blocks = scsi_lu->size >> scsi_lu->blk_shift;
	uint32_t room_bytes = tombolo_tgt_be32(&cmd->scb[10]);

	if (lba >= blocks) {
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
		return;
	}
	if (room_bytes < 4 || scsi_get_in_length(cmd) < room_bytes) {
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_CDB);
		return;
	}
	request->count = room_bytes < HEADER_BYTES ? 1 : (room_bytes - HEADER_BYTES) / DESCRIPTOR_BYTES + 1;
	if (request->count > DESCRIPTORS_MAX)
		request->count = DESCRIPTORS_MAX;
	request->scratch = malloc(request->count * sizeof(struct range));
	if (!request->scratch) {
		tombolo_tgt_request_answer(request, SAM_STAT_BUSY);
		return;
	}
	request->begin = lba;
	request->operation = TOMBOLO_TGT_BLOCK_STATUS;
	request->offset = lba << scsi_lu->blk_shift;
	request->remaining_bytes = (blocks - lba) << scsi_lu->blk_shift;
	request->step = step_report;
	tombolo_tgt_request_submit(request);
}

int tombolo_tgt_get_lba_status(int host_no, struct scsi_cmd *cmd)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(cmd->dev);
	struct tombolo_tgt_request *request = tombolo_tgt_request_new(lu, cmd);

	(void)host_no;
	if (!request)
		return SAM_STAT_GOOD;	/* ignored, the command is asynchronous */
	if (lu->connection.state == TOMBOLO_TGT_CLOSED || (cmd->dev->attrs.removable && !cmd->dev->attrs.online))
		tombolo_tgt_request_refuse(request, NOT_READY, ASC_MEDIUM_NOT_PRESENT);
	else
		submit(request);
	return SAM_STAT_GOOD;
}
