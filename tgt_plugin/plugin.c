/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The backing store "tombolo" as tgtd sees it: the callback table at the bottom,
 * the SCSI commands it replaces, and what a logical unit reports of itself.
 *
 * tgtd loads every shared object in its backing-store directory and calls
 * register_bs_module().
 */

#include <errno.h>
#include <string.h>

#include "tgt_plugin.h"
#include "spc.h"
#include "util.h"

#define VPD_BLOCK_LIMITS PCODE_OFFSET(0xb0)
#define VPD_PROVISIONING PCODE_OFFSET(0xb2)
#define MODE_PAGE_CACHING 0x08
#define MODE_CACHING_WCE 0x04

/* Larger ones would not fit the scratch buffers; tgtd itself has no limit. */
#define LOGICAL_BLOCK_BYTES_MAX 65536

#define BS_OPTION_EXPORT "export="

/* tgtd allocates bs_datasize bytes behind its own structure. */
struct tombolo_tgt_lu *tombolo_tgt_lu_of(struct scsi_lu *scsi_lu)
{
	return (struct tombolo_tgt_lu *)(void *)(scsi_lu + 1);
}

bool tombolo_tgt_is_write_through(struct scsi_lu *scsi_lu)
{
	const struct mode_pg *page = find_mode_page(scsi_lu, MODE_PAGE_CACHING, 0);

	return page && !(page->mode_data[0] & MODE_CACHING_WCE);
}

/* ---- what the unit reports ---- */

/* Block Limits without its 4-byte header.  Also called by tgtd when
 * thin_provisioning is changed. */
static void update_block_limits(struct scsi_lu *scsi_lu, void *unused)
{
	const struct tombolo_tgt_connection *connection = &tombolo_tgt_lu_of(scsi_lu)->connection;
	uint8_t *page = scsi_lu->attrs.lu_vpd[VPD_BLOCK_LIMITS]->data;
	uint32_t granularity_bytes = TOMBOLO_TGT_PHYSICAL_BLOCK_BYTES;
	bool thin = scsi_lu->attrs.thinprovisioning;

	(void)unused;
	if (connection->preferred_block_bytes > granularity_bytes)
		granularity_bytes = connection->preferred_block_bytes;
	page[1] = TOMBOLO_TGT_COMPARE_AND_WRITE_BLOCKS_MAX;
	put_unaligned_be32(thin ? UINT32_MAX : 0, page + 16);	/* maximum UNMAP LBA count */
	put_unaligned_be32(thin ? TOMBOLO_TGT_UNMAP_DESCRIPTORS_MAX : 0, page + 20);
	put_unaligned_be32(thin ? granularity_bytes >> scsi_lu->blk_shift : 0, page + 24);
	put_unaligned_be32(thin ? 1u << 31 : 0, page + 28);	/* alignment 0 is valid */
}

static void set_thin(struct scsi_lu *scsi_lu)
{
	struct vpd *limits = scsi_lu->attrs.lu_vpd[VPD_BLOCK_LIMITS];
	struct vpd *provisioning = scsi_lu->attrs.lu_vpd[VPD_PROVISIONING];

	scsi_lu->attrs.thinprovisioning = 1;
	limits->vpd_update = update_block_limits;
	limits->vpd_update(scsi_lu, NULL);
	provisioning->vpd_update(scsi_lu, NULL);
}

/* ---- commands that tgtd does not leave to backing stores ---- */

static struct service_action service_actions[] = {
	{ SAI_READ_CAPACITY_16, NULL },	/* tgtd's own, filled in below */
	{ SAI_GET_LBA_STATUS, tombolo_tgt_get_lba_status },
	{ 0, NULL },
};

/* Each logical unit has its own copy of the dispatch table. */
static void replace_commands(struct scsi_lu *scsi_lu)
{
	struct device_type_operations *ops = scsi_lu->dev_type_template.ops;
	const struct service_action *own;

	own = find_service_action(ops[SERVICE_ACTION_IN].service_actions, SAI_READ_CAPACITY_16);
	service_actions[0].cmd_perform = own->cmd_perform;
	ops[SERVICE_ACTION_IN].service_actions = service_actions;

	/* tgtd knows COMPARE AND WRITE except for an entry in its table. */
	ops[COMPARE_AND_WRITE] = ops[WRITE_16];
	ops[UNMAP].cmd_perform = tombolo_tgt_unmap;

	/* tgtd lets these pass the persistent reservation of another initiator. */
	ops[UNMAP].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[WRITE_SAME].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[WRITE_SAME_16].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[COMPARE_AND_WRITE].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[ORWRITE_16].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[WRITE_VERIFY].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[WRITE_VERIFY_12].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
	ops[WRITE_VERIFY_16].pr_conflict_bits = ops[WRITE_10].pr_conflict_bits;
}

/* ---- callbacks ---- */

static void on_run(struct event_data *event)
{
	tombolo_tgt_run(event->data);
}

static tgtadm_err parse_options(struct tombolo_tgt_lu *lu, const char *options)
{
	if (!options || !*options)
		return TGTADM_SUCCESS;
	if (strncmp(options, BS_OPTION_EXPORT, strlen(BS_OPTION_EXPORT)) != 0) {
		eprintf("tombolo: unknown bsopts \"%s\", expected %sNAME\n", options, BS_OPTION_EXPORT);
		return TGTADM_INVALID_REQUEST;
	}
	lu->export_option = strdup(options + strlen(BS_OPTION_EXPORT));
	return lu->export_option ? TGTADM_SUCCESS : TGTADM_NOMEM;
}

static tgtadm_err bs_tombolo_init(struct scsi_lu *scsi_lu, char *options)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(scsi_lu);
	tgtadm_err result;

	if (scsi_lu->dev_type_template.type != TYPE_DISK) {
		eprintf("tombolo: only device type disk is supported\n");
		return TGTADM_INVALID_REQUEST;
	}
	lu->scsi_lu = scsi_lu;
	lu->connection.watched_fd = -1;
	lu->connection.nbd_fd = -1;
	lu->connection.timer_fd = -1;
	tombolo_tgt_requests_init(lu);
	tgt_init_sched_event(&lu->run_event, on_run, lu);
	result = parse_options(lu, options);
	if (result != TGTADM_SUCCESS)
		return result;
	replace_commands(scsi_lu);
	set_thin(scsi_lu);
	return TGTADM_SUCCESS;
}

static void bs_tombolo_exit(struct scsi_lu *scsi_lu)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(scsi_lu);

	tgt_remove_sched_event(&lu->run_event);
	tombolo_tgt_requests_exit(lu);
	free(lu->export_option);
	lu->export_option = NULL;
}

/* Without an export in the path, the one of bsopts. */
static int complete_address(struct tombolo_tgt_lu *lu)
{
	struct tombolo_tgt_address *address = &lu->address;

	if (!lu->export_option || address->uri || *address->export_name)
		return 0;
	free(address->export_name);
	address->export_name = strdup(lu->export_option);
	return address->export_name ? 0 : -1;
}

static int bs_tombolo_open(struct scsi_lu *scsi_lu, char *path, int *fd, uint64_t *size)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(scsi_lu);
	const char *reason = "out of memory";

	if (scsi_lu->blk_shift > 16 || (1u << scsi_lu->blk_shift) > LOGICAL_BLOCK_BYTES_MAX) {
		eprintf("%s: logical blocks are limited to %d bytes\n", path, LOGICAL_BLOCK_BYTES_MAX);
		return -1;
	}
	if (tombolo_tgt_address_parse(&lu->address, path, &reason) == -1 || complete_address(lu) == -1) {
		eprintf("%s: %s\n", path, reason);
		return -1;
	}
	if (tombolo_tgt_connection_open(lu) == -1) {
		eprintf("%s: cannot open the NBD export: %s\n", path, lu->connection.failure);
		tombolo_tgt_address_free(&lu->address);
		return -1;
	}
	if (lu->connection.read_only)
		scsi_lu->attrs.readonly = 1;
	if (!scsi_lu->attrs.no_auto_lbppbe)
		update_lbppbe(scsi_lu, TOMBOLO_TGT_PHYSICAL_BLOCK_BYTES);
	update_block_limits(scsi_lu, NULL);

	/* tgtd takes a descriptor that is not negative for success and does not use it:
	 * its GET LBA STATUS did. */
	*fd = lu->connection.timer_fd;
	*size = lu->connection.size_bytes;
	return 0;
}

/* tgtd calls this with commands under way if the path of a unit is changed. */
static void bs_tombolo_close(struct scsi_lu *scsi_lu)
{
	struct tombolo_tgt_lu *lu = tombolo_tgt_lu_of(scsi_lu);

	tombolo_tgt_connection_close(lu);
	tombolo_tgt_requests_end_all(lu);
	tombolo_tgt_address_free(&lu->address);
}

/* A command that is missing here is answered with INVALID COMMAND OPERATION CODE. */
static unsigned char supported_commands[] = {
	ALLOW_MEDIUM_REMOVAL, COMPARE_AND_WRITE, FORMAT_UNIT, INQUIRY, MAINT_PROTOCOL_IN,
	MODE_SELECT, MODE_SELECT_10, MODE_SENSE, MODE_SENSE_10, ORWRITE_16,
	PERSISTENT_RESERVE_IN, PERSISTENT_RESERVE_OUT, PRE_FETCH_10, PRE_FETCH_16,
	READ_6, READ_10, READ_12, READ_16, READ_CAPACITY, RELEASE, REPORT_LUNS,
	REQUEST_SENSE, RESERVE, SEND_DIAGNOSTIC, SERVICE_ACTION_IN, START_STOP,
	SYNCHRONIZE_CACHE, SYNCHRONIZE_CACHE_16, TEST_UNIT_READY, UNMAP,
	VERIFY_10, VERIFY_12, VERIFY_16, WRITE_6, WRITE_10, WRITE_12, WRITE_16,
	WRITE_SAME, WRITE_SAME_16, WRITE_VERIFY, WRITE_VERIFY_12, WRITE_VERIFY_16,
};

static struct backingstore_template tombolo_template = {
	.bs_name = "tombolo",
	.bs_datasize = sizeof(struct tombolo_tgt_lu),
	.bs_init = bs_tombolo_init,
	.bs_exit = bs_tombolo_exit,
	.bs_open = bs_tombolo_open,
	.bs_close = bs_tombolo_close,
	.bs_cmd_submit = tombolo_tgt_command_submit,
};

__attribute__((visibility("default"))) void register_bs_module(void);

void register_bs_module(void)
{
	bs_create_opcode_map(&tombolo_template, supported_commands, ARRAY_SIZE(supported_commands));
	register_backingstore_template(&tombolo_template);
}
