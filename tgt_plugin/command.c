/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What each SCSI command means in NBD operations.
 *
 * tgtd has checked reservations, write protection and the LBA range, and has put
 * the byte offset in cmd->offset; cmd->tl is the length in bytes, cut to 32 bits,
 * of the commands that go through its sbc_rw().  The buffers may be shorter or
 * longer than that: tgtd sets the residual, and the shorter of both is moved.
 *
 * Commands in several stages are chains of step functions, in the order in which
 * they run.  Comparisons and patterns go piece by piece through a scratch buffer.
 */

#include <string.h>

#include "tgt_plugin.h"

/* CDB byte 1 */
#define CDB_FUA 0x08
#define CDB_BYTCHK 0x06
#define CDB_BYTCHK_ONE_BLOCK 0x06
#define CDB_WRITE_SAME_UNMAP 0x08
#define CDB_WRITE_SAME_LBDATA_PBDATA 0x06
#define CDB_WRITE_SAME_NO_DATA_OUT 0x01

static void set_operation(struct tombolo_tgt_request *request, enum tombolo_tgt_operation operation, uint64_t offset,
			  uint64_t bytes, uint8_t *buffer)
{
	request->operation = operation;
	request->offset = offset;
	request->remaining_bytes = bytes;
	request->buffer = buffer;
}

static void set_range(struct tombolo_tgt_request *request, uint64_t bytes)
{
	request->begin = request->cmd->offset;
	request->end = request->begin + bytes;
	request->total_bytes = bytes;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t block_bytes(const struct tombolo_tgt_request *request)
{
	return 1u << request->lu->scsi_lu->blk_shift;
}

static uint8_t *out_buffer(struct tombolo_tgt_request *request)
{
	return scsi_get_out_buffer(request->cmd);
}

static void refuse_cdb(struct tombolo_tgt_request *request)
{
	tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_FIELD_IN_CDB);
}

/* ---- piece by piece ---- */

static uint32_t piece_bytes(const struct tombolo_tgt_request *request)
{
	uint64_t rest = request->total_bytes - request->position;

	return rest < TOMBOLO_TGT_SCRATCH_BYTES ? (uint32_t)rest : TOMBOLO_TGT_SCRATCH_BYTES;
}

static void set_piece(struct tombolo_tgt_request *request, enum tombolo_tgt_operation operation)
{
	set_operation(request, operation, request->begin + request->position, piece_bytes(request), request->scratch);
}

/* false: the command has been answered. */
static bool get_scratch(struct tombolo_tgt_request *request, uint64_t bytes)
{
	request->scratch = malloc(bytes < TOMBOLO_TGT_SCRATCH_BYTES ? (size_t)bytes : TOMBOLO_TGT_SCRATCH_BYTES);
	if (!request->scratch)
		tombolo_tgt_request_answer(request, SAM_STAT_BUSY);
	return request->scratch;
}

static void miscompare(struct tombolo_tgt_request *request, const uint8_t *expected, const uint8_t *found,
		       uint64_t data_out_offset)
{
	uint64_t i = 0;

	while (expected[i] == found[i])
		i++;
	sense_data_build_with_info(request->cmd, MISCOMPARE, ASC_MISCOMPARE_DURING_VERIFY_OPERATION,
				   data_out_offset + i);
	tombolo_tgt_request_finish(request, SAM_STAT_CHECK_CONDITION);
}

/* ---- READ ---- */

static void submit_read(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint32_t bytes = smaller(cmd->tl, scsi_get_in_length(cmd));

	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	set_operation(request, TOMBOLO_TGT_READ, cmd->offset, bytes, scsi_get_in_buffer(cmd));
	tombolo_tgt_request_submit(request);
}

/* ---- WRITE ---- */

/* The last step of everything that writes: forces unit access where the server has
 * no flag for it. */
static void step_written(struct tombolo_tgt_request *request)
{
	if (!request->fua || request->lu->connection.can_fua) {
		tombolo_tgt_request_finish(request, SAM_STAT_GOOD);
		return;
	}
	set_operation(request, TOMBOLO_TGT_FLUSH, 0, 0, NULL);
	request->step = tombolo_tgt_step_good;
	tombolo_tgt_request_issue(request);
}

static void prepare_write(struct tombolo_tgt_request *request, uint64_t bytes)
{
	set_range(request, bytes);
	request->changes_data = true;
	request->fua = request->fua || tombolo_tgt_is_write_through(request->lu->scsi_lu);
}

static void submit_write(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint32_t bytes = smaller(cmd->tl, scsi_get_out_length(cmd));

	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	request->fua = cmd->scb[0] != WRITE_6 && (cmd->scb[1] & CDB_FUA);
	prepare_write(request, bytes);
	set_operation(request, TOMBOLO_TGT_WRITE, cmd->offset, bytes, out_buffer(request));
	request->step = step_written;
	tombolo_tgt_request_submit(request);
}

/* ---- VERIFY, WRITE AND VERIFY ---- */

static void step_verify(struct tombolo_tgt_request *request)
{
	uint32_t piece = piece_bytes(request);
	uint32_t done = 0;

	while (request->compare && done < piece) {
		uint32_t phase = (uint32_t)((request->position + done) % request->period_bytes);
		uint32_t run = smaller(piece - done, request->period_bytes - phase);

		if (memcmp(out_buffer(request) + phase, request->scratch + done, run) != 0) {
			miscompare(request, out_buffer(request) + phase, request->scratch + done, phase);
			return;
		}
		done += run;
	}
	request->position += piece;
	if (request->position == request->total_bytes) {
		tombolo_tgt_request_finish(request, SAM_STAT_GOOD);
		return;
	}
	set_piece(request, TOMBOLO_TGT_READ);
	tombolo_tgt_request_issue(request);
}

/* BYTCHK 01b: the data-out buffer is compared; 11b: its one block with every block. */
static void submit_verify(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint64_t bytes = (uint64_t)scsi_rw_count(cmd->scb) << request->lu->scsi_lu->blk_shift;
	uint32_t data_bytes = scsi_get_out_length(cmd);

	request->compare = true;
	if ((cmd->scb[1] & CDB_BYTCHK) == CDB_BYTCHK_ONE_BLOCK) {
		if (data_bytes < block_bytes(request)) {
			refuse_cdb(request);
			return;
		}
		request->period_bytes = block_bytes(request);
	} else {
		bytes = bytes < data_bytes ? bytes : data_bytes;
		request->period_bytes = (uint32_t)bytes;
	}
	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	set_range(request, bytes);
	if (!get_scratch(request, bytes))
		return;
	set_piece(request, TOMBOLO_TGT_READ);
	request->step = step_verify;
	tombolo_tgt_request_submit(request);
}

static void step_written_to_verify(struct tombolo_tgt_request *request)
{
	set_piece(request, TOMBOLO_TGT_READ);
	request->step = step_verify;
	tombolo_tgt_request_issue(request);
}

static void step_flush_to_verify(struct tombolo_tgt_request *request)
{
	if (request->lu->connection.can_fua) {
		step_written_to_verify(request);
		return;
	}
	set_operation(request, TOMBOLO_TGT_FLUSH, 0, 0, NULL);
	request->step = step_written_to_verify;
	tombolo_tgt_request_issue(request);
}

/* Verification is of the medium, so the data goes there first.  With BYTCHK it is
 * read back and compared, and no other write may come between. */
static void submit_write_verify(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint32_t bytes = smaller(cmd->tl, scsi_get_out_length(cmd));

	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	request->fua = true;
	prepare_write(request, bytes);
	request->compare = cmd->scb[1] & CDB_BYTCHK;
	request->exclusive = request->compare;
	request->period_bytes = bytes;
	if (!get_scratch(request, bytes))
		return;
	set_operation(request, TOMBOLO_TGT_WRITE, cmd->offset, bytes, out_buffer(request));
	request->step = step_flush_to_verify;
	tombolo_tgt_request_submit(request);
}

/* ---- ORWRITE ---- */

static void step_or(struct tombolo_tgt_request *request)
{
	uint8_t *data = out_buffer(request) + request->position;
	uint32_t piece = piece_bytes(request);

	for (uint32_t i = 0; i < piece; i++)
		data[i] |= request->scratch[i];
	request->position += piece;
	if (request->position < request->total_bytes) {
		set_piece(request, TOMBOLO_TGT_READ);
	} else {
		set_operation(request, TOMBOLO_TGT_WRITE, request->begin, request->total_bytes, out_buffer(request));
		request->step = step_written;
	}
	tombolo_tgt_request_issue(request);
}

static void submit_orwrite(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint32_t bytes = smaller(cmd->tl, scsi_get_out_length(cmd));

	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	request->fua = cmd->scb[1] & CDB_FUA;
	prepare_write(request, bytes);
	request->exclusive = true;
	if (!get_scratch(request, bytes))
		return;
	set_piece(request, TOMBOLO_TGT_READ);
	request->step = step_or;
	tombolo_tgt_request_submit(request);
}

/* ---- COMPARE AND WRITE ---- */

static void step_compare(struct tombolo_tgt_request *request)
{
	uint32_t bytes = (uint32_t)request->total_bytes;

	if (memcmp(out_buffer(request), request->scratch, bytes) != 0) {
		miscompare(request, out_buffer(request), request->scratch, 0);
		return;
	}
	set_operation(request, TOMBOLO_TGT_WRITE, request->begin, bytes, out_buffer(request) + bytes);
	request->step = step_written;
	tombolo_tgt_request_issue(request);
}

/* The data-out buffer holds the expected data, then the new data. */
static void submit_compare_and_write(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	uint32_t bytes = cmd->tl;

	if (bytes > block_bytes(request) * TOMBOLO_TGT_COMPARE_AND_WRITE_BLOCKS_MAX ||
	    scsi_get_out_length(cmd) != 2 * bytes) {
		refuse_cdb(request);
		return;
	}
	if (bytes == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	request->fua = cmd->scb[1] & CDB_FUA;
	prepare_write(request, bytes);
	request->exclusive = true;
	request->scratch = malloc(bytes);
	if (!request->scratch) {
		tombolo_tgt_request_answer(request, SAM_STAT_BUSY);
		return;
	}
	set_operation(request, TOMBOLO_TGT_READ, cmd->offset, bytes, request->scratch);
	request->step = step_compare;
	tombolo_tgt_request_submit(request);
}

/* ---- WRITE SAME ---- */

static void step_write_same(struct tombolo_tgt_request *request)
{
	request->position += piece_bytes(request);
	if (request->position == request->total_bytes) {
		step_written(request);
		return;
	}
	set_piece(request, TOMBOLO_TGT_WRITE);
	tombolo_tgt_request_issue(request);
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
	return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

static void fill_scratch(struct tombolo_tgt_request *request)
{
	uint32_t bytes = piece_bytes(request);

	for (uint32_t i = 0; i < bytes; i += block_bytes(request))
		memcpy(request->scratch + i, out_buffer(request), block_bytes(request));
}

/* Zeroes become WRITE ZEROES, with the UNMAP bit or without: what an unmapped block
 * reads as is zeroes, too.  With UNMAP the data is not looked at, as in tgtd's own
 * backing stores and in Linux's target; libiscsi's tests count on it, although SBC-3
 * would have data other than zeroes written.
 * tgtd's cmd->tl is too short for "up to the end" of a large unit. */
static void submit_write_same(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;
	struct scsi_lu *scsi_lu = request->lu->scsi_lu;
	bool no_data_out = cmd->scb[0] == WRITE_SAME_16 && (cmd->scb[1] & CDB_WRITE_SAME_NO_DATA_OUT);
	bool unmap = cmd->scb[1] & CDB_WRITE_SAME_UNMAP;
	uint64_t bytes = (uint64_t)scsi_rw_count(cmd->scb) << scsi_lu->blk_shift;

	if ((cmd->scb[1] & CDB_WRITE_SAME_LBDATA_PBDATA) ||
	    (scsi_get_out_length(cmd) == 0 && !no_data_out && !unmap)) {
		refuse_cdb(request);
		return;
	}
	if (bytes == 0)
		bytes = (scsi_lu->size >> scsi_lu->blk_shift << scsi_lu->blk_shift) - cmd->offset;
	prepare_write(request, bytes);
	if (unmap || no_data_out || is_zero(out_buffer(request), block_bytes(request))) {
		set_operation(request, TOMBOLO_TGT_ZERO, cmd->offset, bytes, NULL);
		request->step = step_written;
	} else {
		if (!get_scratch(request, bytes))
			return;
		fill_scratch(request);
		set_piece(request, TOMBOLO_TGT_WRITE);
		request->step = step_write_same;
	}
	tombolo_tgt_request_submit(request);
}

/* ---- SYNCHRONIZE CACHE, PRE-FETCH ---- */

/* IMMED is not used to answer early: the failure of a flush that has been answered
 * could only be told as a deferred error. */
static void submit_synchronize_cache(struct tombolo_tgt_request *request)
{
	set_operation(request, TOMBOLO_TGT_FLUSH, 0, 0, NULL);
	tombolo_tgt_request_submit(request);
}

static void submit_pre_fetch(struct tombolo_tgt_request *request)
{
	struct scsi_cmd *cmd = request->cmd;

	/* A length of 0 means up to the end of the medium: more than any cache. */
	if (cmd->tl == 0) {
		tombolo_tgt_request_answer(request, SAM_STAT_GOOD);
		return;
	}
	set_operation(request, TOMBOLO_TGT_CACHE, cmd->offset, cmd->tl, NULL);
	tombolo_tgt_request_submit(request);
}

/* ---- dispatch ---- */

static void submit(struct tombolo_tgt_request *request)
{
	switch (request->cmd->scb[0]) {
	case READ_6:
	case READ_10:
	case READ_12:
	case READ_16:
		submit_read(request);
		break;
	case WRITE_6:
	case WRITE_10:
	case WRITE_12:
	case WRITE_16:
		submit_write(request);
		break;
	case WRITE_VERIFY:
	case WRITE_VERIFY_12:
	case WRITE_VERIFY_16:
		submit_write_verify(request);
		break;
	case VERIFY_10:
	case VERIFY_12:
	case VERIFY_16:
		submit_verify(request);
		break;
	case ORWRITE_16:
		submit_orwrite(request);
		break;
	case COMPARE_AND_WRITE:
		submit_compare_and_write(request);
		break;
	case WRITE_SAME:
	case WRITE_SAME_16:
		submit_write_same(request);
		break;
	case SYNCHRONIZE_CACHE:
	case SYNCHRONIZE_CACHE_16:
		submit_synchronize_cache(request);
		break;
	case PRE_FETCH_10:
	case PRE_FETCH_16:
		submit_pre_fetch(request);
		break;
	default:
		tombolo_tgt_request_refuse(request, ILLEGAL_REQUEST, ASC_INVALID_OP_CODE);
		break;
	}
}

/* bs_cmd_submit.  Always 0: a failure is told by the command's own status, because
 * tgtd would make HARDWARE ERROR of any other value. */
int tombolo_tgt_command_submit(struct scsi_cmd *cmd)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(cmd->dev);
	struct tombolo_tgt_request *request = tombolo_tgt_request_new(lu, cmd);

	if (!request)
		return 0;
	if (lu->connection.state == TOMBOLO_TGT_CLOSED)
		tombolo_tgt_request_refuse(request, NOT_READY, ASC_MEDIUM_NOT_PRESENT);
	else
		submit(request);
	return 0;
}
