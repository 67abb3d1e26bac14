/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Data: reading and writing, and what else is done to a file's contents.
 *
 * What is answered soon, because the data is cached and there is room, is waited for: the
 * thread that asked goes on with the answer, and nobody has to be woken.  What is not
 * goes on by itself, and ganesha takes it back from another thread.
 *
 * Data goes from ganesha's buffers to the socket and back without a copy.  A read or
 * write longer than the daemon takes is cut short, as NFS allows.
 *
 * Owns the transfers under way.  The buffers are ganesha's, and the daemon has the data.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "call.h"
#include "errors.h"
#include "operations.h"
#include "reservations.h"

#include <linux/falloc.h>

/* The first part of a message is the request's own structure. */
#define DATA_PARTS_MAX (TOMBOLO_FSAL_BODY_PARTS_MAX - 1)

/* Far more than the gateway needs for what it has, and little to hold up a thread for. */
#define SOON_MS 10

/* A read or write under way. */
struct transfer {
	struct tombolo_fsal_request request;
	union {
		struct fuse_read_in read;
		struct fuse_write_in write;
	} question;
	struct tombolo_wire_written written;
	uint64_t changes;	/* of the export, when a write was sent */
	struct iovec reply[DATA_PARTS_MAX];
	uint32_t bytes;	/* asked for */
	/* What the answer amounts to; fills in `argument`. */
	fsal_status_t (*result)(struct transfer *transfer);

	struct fsal_obj_handle *object;
	struct fsal_io_arg *argument;
	fsal_async_cb callback;
	void *callback_argument;
	struct gsh_export *gsh_export;
	struct fsal_export *fsal_export;
};

static struct transfer *transfer_new(uint32_t opcode, struct fsal_obj_handle *object, struct fsal_io_arg *argument,
				     fsal_async_cb callback, void *callback_argument)
{
	struct transfer *transfer = gsh_calloc(1, sizeof(*transfer));

	tombolo_fsal_request_init(&transfer->request, tombolo_fsal_current_export(), opcode, object->fileid);
	transfer->object = object;
	transfer->argument = argument;
	transfer->callback = callback;
	transfer->callback_argument = callback_argument;
	transfer->gsh_export = op_ctx->ctx_export;
	transfer->fsal_export = op_ctx->fsal_export;
	return transfer;
}

/* Tells ganesha how the transfer went, and frees it. */
static void finish(struct transfer *transfer)
{
	fsal_status_t status = transfer->result(transfer);

	transfer->callback(transfer->object, status, transfer->argument, transfer->callback_argument);
	gsh_free(transfer);
}

/* On a thread of the session, which ganesha does not know.  The operation that waits for this
 * keeps the export alive. */
static void finish_late(struct tombolo_fsal_request *request)
{
	struct transfer *transfer = container_of(request, struct transfer, request);
	struct req_op_context context;

	get_gsh_export_ref(transfer->gsh_export);
	init_op_context_simple(&context, transfer->gsh_export, transfer->fsal_export);
	finish(transfer);
	release_op_context();
}

static void carry_out(struct tombolo_fsal_export *export, struct transfer *transfer)
{
	transfer->request.done = finish_late;
	if (tombolo_fsal_session_call_briefly(export->session, &transfer->request, SOON_MS))
		finish(transfer);
}

/* Describes up to `bytes_max` of the buffers; returns how many bytes. */
static uint32_t cut(const struct fsal_io_arg *argument, uint32_t bytes_max, struct iovec *parts, unsigned int *count)
{
	uint32_t bytes = 0;

	*count = 0;
	for (int i = 0; i < argument->iov_count && *count < DATA_PARTS_MAX && bytes < bytes_max; i++) {
		size_t rest = bytes_max - bytes;
		size_t taken = argument->iov[i].iov_len < rest ? argument->iov[i].iov_len : rest;

		parts[(*count)++] = (struct iovec){ .iov_base = argument->iov[i].iov_base, .iov_len = taken };
		bytes += (uint32_t)taken;
	}
	return bytes;
}

/* ---- reading ---- */

static fsal_status_t result_of_read(struct transfer *transfer)
{
	const struct tombolo_fsal_request *request = &transfer->request;

	if (request->error == 0) {
		transfer->argument->io_amount = request->reply_bytes;
		transfer->argument->end_of_file = request->reply_bytes < transfer->bytes;
	}
	return tombolo_fsal_status(request->error);
}

static void read2(struct fsal_obj_handle *object, bool bypass, fsal_async_cb callback, struct fsal_io_arg *argument,
		  void *callback_argument)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct transfer *transfer;
	fsal_status_t status = tombolo_fsal_share_check(object, argument->state, FSAL_O_READ, bypass);

	argument->io_amount = 0;
	/* READ_PLUS: the client takes to READ. */
	if (FSAL_IS_SUCCESS(status) && argument->info)
		status = fsalstat(ERR_FSAL_NOTSUPP, 0);
	if (FSAL_IS_ERROR(status)) {
		callback(object, status, argument, callback_argument);
		return;
	}
	transfer = transfer_new(FUSE_READ, object, argument, callback, callback_argument);
	transfer->bytes = cut(argument, export->io_bytes_max, transfer->reply, &transfer->request.reply_count);
	transfer->question.read = (struct fuse_read_in){ .offset = argument->offset, .size = transfer->bytes };
	tombolo_fsal_request_add(&transfer->request, &transfer->question.read, sizeof(transfer->question.read));
	transfer->request.reply = transfer->reply;
	transfer->result = result_of_read;
	carry_out(export, transfer);
}

/* ---- writing ---- */

static fsal_status_t result_of_write(struct transfer *transfer)
{
	const struct tombolo_fsal_request *request = &transfer->request;
	const struct tombolo_wire_written *written = &transfer->written;
	/* A daemon that took the place of a newer one sends none. */
	const bool has_attributes = request->reply_bytes == sizeof(*written);

	if (request->error)
		return tombolo_fsal_status(request->error);
	if ((request->reply_bytes != sizeof(written->written) && !has_attributes) ||
	    written->written.size > transfer->bytes ||
	    (has_attributes && !tombolo_fsal_attributes_valid(&written->attributes)))
		return tombolo_fsal_bad_answer(FUSE_WRITE);
	if (has_attributes)
		tombolo_fsal_recent_keep(tombolo_fsal_object_of(transfer->object), &written->attributes,
					 transfer->changes);
	/* What was asked of stability was achieved, and fsal_stable still says so. */
	transfer->argument->io_amount = written->written.size;
	return tombolo_fsal_success();
}

static void write2(struct fsal_obj_handle *object, bool bypass, fsal_async_cb callback, struct fsal_io_arg *argument,
		   void *callback_argument)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct iovec parts[DATA_PARTS_MAX];
	struct fuse_write_in *question;
	struct transfer *transfer;
	unsigned int part_count;
	fsal_status_t status = tombolo_fsal_share_check(object, argument->state, FSAL_O_WRITE, bypass);

	argument->io_amount = 0;
	if (FSAL_IS_ERROR(status)) {
		callback(object, status, argument, callback_argument);
		return;
	}
	transfer = transfer_new(FUSE_WRITE, object, argument, callback, callback_argument);
	transfer->bytes = cut(argument, export->io_bytes_max, parts, &part_count);
	question = &transfer->question.write;
	question->offset = argument->offset;
	question->size = transfer->bytes;
	question->flags = argument->fsal_stable ? O_WRONLY | O_DSYNC : O_WRONLY;
	/* As Linux: whoever may not set these bits takes them from a file by writing to it. */
	question->write_flags = op_ctx->creds.caller_uid != 0 ? FUSE_WRITE_KILL_SUIDGID : 0;
	if (export->has_write_attributes)
		question->write_flags |= TOMBOLO_WIRE_WRITE_WITH_ATTRIBUTES;
	transfer->changes = tombolo_fsal_changes_counted(export);
	tombolo_fsal_request_add(&transfer->request, question, sizeof(*question));
	for (unsigned int i = 0; i < part_count; i++)
		tombolo_fsal_request_add(&transfer->request, parts[i].iov_base, parts[i].iov_len);
	transfer->reply[0] = (struct iovec){ .iov_base = &transfer->written, .iov_len = sizeof(transfer->written) };
	transfer->request.reply = transfer->reply;
	transfer->request.reply_count = 1;
	transfer->result = result_of_write;
	carry_out(export, transfer);
}

/* All of the file, whatever the range: so is the service's way. */
static fsal_status_t commit2(struct fsal_obj_handle *object, off_t offset, size_t bytes)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_fsync_in question = { 0 };
	struct tombolo_fsal_request request;

	(void)offset;
	(void)bytes;
	tombolo_fsal_request_init(&request, export, FUSE_FSYNC, object->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	return tombolo_fsal_call_for_status(export, &request);
}

/* ---- data and holes ---- */

static fsal_status_t find_region(struct tombolo_fsal_export *export, uint64_t inode, uint64_t offset, uint32_t whence,
				 uint64_t *found)
{
	struct fuse_lseek_in question = { .offset = offset, .whence = whence };
	struct tombolo_fsal_request request;
	struct fuse_lseek_out answer;
	fsal_status_t status;

	tombolo_fsal_request_init(&request, export, FUSE_LSEEK, inode);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	status = tombolo_fsal_call_exact(export, &request, &answer, sizeof(answer));
	if (FSAL_IS_SUCCESS(status))
		*found = answer.offset;
	return status;
}

/* RFC 7862, 15.11: beyond the end of the file there is nothing to seek; up to it, not
 * finding data is an answer. */
static fsal_status_t seek2(struct fsal_obj_handle *object, struct state_t *state, struct io_info *info)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	uint64_t offset = info->io_content.hole.di_offset;
	uint64_t found = 0;
	struct fuse_attr attributes;
	fsal_status_t status = tombolo_fsal_share_check(object, state, FSAL_O_ANY, false);

	if (FSAL_IS_SUCCESS(status))
		status = tombolo_fsal_fetch_attributes(export, object->fileid, &attributes);
	if (FSAL_IS_ERROR(status))
		return status;
	if (offset >= attributes.size)
		return fsalstat(ERR_FSAL_NXIO, ENXIO);
	switch (info->io_content.what) {
	case NFS4_CONTENT_DATA:
		status = find_region(export, object->fileid, offset, SEEK_DATA, &found);
		break;
	case NFS4_CONTENT_HOLE:
		status = find_region(export, object->fileid, offset, SEEK_HOLE, &found);
		break;
	default:
		return fsalstat(ERR_FSAL_UNION_NOTSUPP, 0);
	}
	if (status.minor == ENXIO) {
		info->io_eof = true;
		return tombolo_fsal_success();
	}
	if (FSAL_IS_SUCCESS(status)) {
		info->io_eof = found >= attributes.size;
		info->io_content.hole.di_offset = found;
	}
	return status;
}

static fsal_status_t allocate(struct fsal_obj_handle *object, struct state_t *state, uint64_t offset, uint64_t bytes,
			      bool allocated)
{
	struct tombolo_fsal_export *export = tombolo_fsal_current_export();
	struct fuse_fallocate_in question = {
		.offset = offset,
		.length = bytes,
		.mode = allocated ? 0 : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	};
	struct tombolo_fsal_request request;
	fsal_status_t status = tombolo_fsal_share_check(object, state, FSAL_O_WRITE, false);

	if (FSAL_IS_ERROR(status))
		return status;
	tombolo_fsal_request_init(&request, export, FUSE_FALLOCATE, object->fileid);
	tombolo_fsal_request_add(&request, &question, sizeof(question));
	return tombolo_fsal_call_for_status(export, &request);
}

/* The service learns what is read ahead from the reading itself. */
static fsal_status_t io_advise2(struct fsal_obj_handle *object, struct state_t *state, struct io_hints *hints)
{
	(void)object;
	(void)state;
	hints->hints = 0;
	return tombolo_fsal_success();
}

void tombolo_fsal_file_ops_init(struct fsal_obj_ops *ops)
{
	ops->read2 = read2;
	ops->write2 = write2;
	ops->commit2 = commit2;
	ops->seek2 = seek2;
	ops->fallocate = allocate;
	ops->io_advise2 = io_advise2;
}
