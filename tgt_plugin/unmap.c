/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UNMAP, in place of tgtd's handler, which ends every UNMAP with a sense.
 *
 * Unmapped blocks must read as zeroes (LBPRZ), so each descriptor becomes an NBD
 * WRITE ZEROES that may punch a hole, not a TRIM, after which anything may be
 * read.  All descriptors are checked before the first is carried out.
 */

#include "tgt_plugin.h"
#include "util.h"

#define HEADER_BYTES 8
#define DESCRIPTOR_BYTES 16
#define CDB_ANCHOR 0x01

static const uint8_t *descriptor(struct tombolo_tgt_request *request, uint32_t index)
{
	const uint8_t *list = scsi_get_out_buffer(request->cmd);

	return list + HEADER_BYTES + (size_t)index * DESCRIPTOR_BYTES;
}

static void step_next(struct tombolo_tgt_request *request)
{
	unsigned int shift = request->lu->scsi_lu->blk_shift;

	for (; request->index < request->count; request->index++) {
		const uint8_t *entry = descriptor(request, request->index);
		uint32_t blocks = tombolo_tgt_be32(entry + 8);

		if (blocks == 0)
			continue;
		request->operation = TOMBOLO_TGT_ZERO;
		request->offset = tombolo_tgt_be64(entry) << shift;
		request->remaining_bytes = (uint64_t)blocks << shift;
		request->index++;
		tombolo_tgt_request_issue(request);
		return;
	}
	/* Write-through without a FUA flag; see step_written() in command.c. */
	if (request->fua && !request->lu->connection.can_fua) {
		request->operation = TOMBOLO_TGT_FLUSH;
		request->offset = 0;
		request->step = tombolo_tgt_step_good;
		tombolo_tgt_request_issue(request);
		return;
	}
	tombolo_tgt_request_finish(request, SAM_STAT_GOOD);
}

/* Sets begin and end around all descriptors.  false: one is out of range. */
static bool check_descriptors(struct tombolo_tgt_request *request)
{
	unsigned int shift = request->lu->scsi_lu->blk_shift;
	uint64_t blocks_max = request->lu->scsi_lu->size >> shift;

	request->begin = UINT64_MAX;
	for (uint32_t i = 0; i < request->count; i++) {
		const uint8_t *entry = descriptor(request, i);
		uint64_t lba = tombolo_tgt_be64(entry);
		uint32_t blocks = tombolo_tgt_be32(entry + 8);

		if (lba > blocks_max || blocks > blocks_max - lba)
			return false;
		if (request->begin > lba << shift)
			request->begin = lba << shift;
		if (request->end < (lba + blocks) << shift)
			request->end = (lba + blocks) << shift;
	}
	return true;
}

static void submit(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	const uint8_t *list = scsi_get_out_buffer(cmd);
	uint32_t list_bytes = get_unaligned_be16(&cmd->scb[7]);
	uint32_t descriptors_bytes;

	if (list_bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	if (list_bytes < HEADER_BYTES || list_bytes > scsi_get_out_length(cmd)) {
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERR);
		return;
	}
	descriptors_bytes = get_unaligned_be16(list + 2);
	if (descriptors_bytes > list_bytes - HEADER_BYTES)
		descriptors_bytes = list_bytes - HEADER_BYTES;
	request->count = descriptors_bytes / DESCRIPTOR_BYTES;
	if (request->count > TOMBOLO_TGT_UNMAP_DESCRIPTORS_MAX) {
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_PARMS);
		return;
	}
	if (!check_descriptors(request)) {
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_LBA_OUT_OF_RANGE);
		return;
	}
	request->changes_data = true;
	request->fua = tombolo_tgt_is_write_through(request->lu->scsi_lu);
	request->step = step_next;
	tombolo_tgt_request_submit(request);
}

int tombolo_tgt_unmap(int host_no, struct scsi_cmd *cmd)
{
	struct scsi_lu *scsi_lu = cmd->dev;
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(scsi_lu);
	struct tombolo_tgt_request *request;

	(void)host_no;
	if (device_reserved(cmd))
		return SAM_STAT_RESERVATION_CONFLICT;
	request = tombolo_tgt_request_new(lu, cmd);
	if (!request)
		return SAM_STAT_GOOD;	/* ignored, the command is asynchronous */
	if (!scsi_lu->attrs.thinprovisioning)
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_OP_CODE);
	else if (cmd->scb[1] & CDB_ANCHOR)
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_CDB);
	else if (lu->connection.state == TOMBOLO_TGT_CLOSED || (scsi_lu->attrs.removable && !scsi_lu->attrs.online))
		tombolo_tgt_request_refuse(request, NOT_READY, ASC_MEDIUM_NOT_PRESENT);
	else if (scsi_lu->attrs.readonly || scsi_lu->attrs.swp)
		tombolo_tgt_request_refuse(request, DATA_PROTECT, ASC_WRITE_PROTECT);
	else
		submit(request);
	return SAM_STAT_GOOD;
}
