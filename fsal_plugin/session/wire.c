/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * See wire.h.  All reads of received bytes go through memcpy() after a check of
 * the length, so alignment and truncation do no harm.
 */

#include "wire.h"

#include <string.h>

/* The daemon need not support larger ones, and a reply is never larger than asked for. */
#define WRITE_BYTES_MIN 4096u
#define WRITE_BYTES_MAX (64u << 20)

size_t tombolo_wire_encode_attach(uint8_t message[TOMBOLO_WIRE_ATTACH_BYTES_MAX], uint32_t flags, uint64_t incarnation,
				  const char *client_name, const char *share_name)
{
	size_t client_bytes = strlen(client_name);
	size_t share_bytes = strlen(share_name);
	size_t total = sizeof(struct fuse_in_header) + sizeof(struct tombolo_wire_attach) + client_bytes + share_bytes;
	struct fuse_in_header header = { .len = (uint32_t)total, .opcode = TOMBOLO_WIRE_OPCODE_ATTACH };
	struct tombolo_wire_attach attach = {
		.version = TOMBOLO_WIRE_VERSION,
		.flags = flags,
		.incarnation = incarnation,
		.client_name_bytes = (uint32_t)client_bytes,
		.share_name_bytes = (uint32_t)share_bytes,
		.fuse_minor = TOMBOLO_WIRE_FUSE_MINOR,
		.init_flags = TOMBOLO_WIRE_INIT_FLAGS,
	};
	uint8_t *end = message;

	if (client_bytes == 0 || client_bytes > TOMBOLO_WIRE_CLIENT_NAME_BYTES_MAX || share_bytes == 0 ||
	    share_bytes > TOMBOLO_WIRE_NAME_BYTES_MAX)
		return 0;
	memcpy(end, &header, sizeof(header));
	end += sizeof(header);
	memcpy(end, &attach, sizeof(attach));
	end += sizeof(attach);
	memcpy(end, client_name, client_bytes);
	memcpy(end + client_bytes, share_name, share_bytes);
	return total;
}

bool tombolo_wire_attached_valid(const struct tombolo_wire_attached *attached)
{
	return attached->version == TOMBOLO_WIRE_VERSION && attached->root != 0 && attached->boot != 0 &&
	       attached->write_bytes_max >= WRITE_BYTES_MIN && attached->write_bytes_max <= WRITE_BYTES_MAX;
}

bool tombolo_wire_reply_valid(const struct fuse_out_header *header, size_t body_bytes_max)
{
	if (header->len < sizeof(*header) || header->len - sizeof(*header) > body_bytes_max)
		return false;
	if (header->unique == 0)
		return header->error > 0;
	/* An error has no body; and errno values are small. */
	return header->error == 0 || (header->error < 0 && header->error > -4096 && header->len == sizeof(*header));
}

bool tombolo_wire_name_valid(const char *name)
{
	size_t bytes = strlen(name);

	return bytes > 0 && bytes <= TOMBOLO_WIRE_NAME_BYTES_MAX && !strchr(name, '/');
}

int tombolo_wire_next_entry(const uint8_t *answer, size_t bytes, size_t *position,
			    struct tombolo_wire_directory_entry *entry)
{
	struct fuse_direntplus fixed;
	size_t rest = bytes - *position;

	if (rest == 0)
		return 0;
	if (rest < FUSE_NAME_OFFSET_DIRENTPLUS)
		return -1;
	memcpy(&fixed, answer + *position, FUSE_NAME_OFFSET_DIRENTPLUS);
	if (fixed.dirent.namelen == 0 || fixed.dirent.namelen > TOMBOLO_WIRE_NAME_BYTES_MAX ||
	    fixed.dirent.namelen > rest - FUSE_NAME_OFFSET_DIRENTPLUS)
		return -1;
	entry->entry = fixed.entry_out;
	entry->cookie = fixed.dirent.off;
	entry->inode = fixed.dirent.ino;
	entry->name = (const char *)answer + *position + FUSE_NAME_OFFSET_DIRENTPLUS;
	entry->name_bytes = fixed.dirent.namelen;
	if (memchr(entry->name, '/', entry->name_bytes) || memchr(entry->name, '\0', entry->name_bytes))
		return -1;
	/* The last entry may come without its padding. */
	size_t padded = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + (size_t)fixed.dirent.namelen);

	*position = padded < rest ? *position + padded : bytes;
	return 1;
}

static int decode_inode_changed(const uint8_t *body, size_t bytes, struct tombolo_wire_notification *notification)
{
	struct fuse_notify_inval_inode_out out;

	if (bytes != sizeof(out))
		return -1;
	memcpy(&out, body, sizeof(out));
	notification->kind = TOMBOLO_WIRE_INODE_CHANGED;
	notification->inode = out.ino;
	/* A negative offset is the kernel protocol's "attributes only". */
	notification->data_changed = out.off >= 0;
	return 1;
}

static int decode_entry_changed(const uint8_t *body, size_t bytes, struct tombolo_wire_notification *notification)
{
	struct fuse_notify_inval_entry_out out;

	if (bytes < sizeof(out))
		return -1;
	memcpy(&out, body, sizeof(out));
	/* The name is followed by a NUL. */
	if (bytes - sizeof(out) != (size_t)out.namelen + 1)
		return -1;
	notification->kind = TOMBOLO_WIRE_ENTRY_CHANGED;
	notification->inode = out.parent;
	return 1;
}

static int decode_entry_removed(const uint8_t *body, size_t bytes, struct tombolo_wire_notification *notification)
{
	struct fuse_notify_delete_out out;

	if (bytes < sizeof(out))
		return -1;
	memcpy(&out, body, sizeof(out));
	if (bytes - sizeof(out) != (size_t)out.namelen + 1)
		return -1;
	notification->kind = TOMBOLO_WIRE_ENTRY_REMOVED;
	notification->inode = out.parent;
	notification->child = out.child;
	return 1;
}

int tombolo_wire_decode_notification(int32_t code, const uint8_t *body, size_t bytes,
				     struct tombolo_wire_notification *notification)
{
	memset(notification, 0, sizeof(*notification));
	switch (code) {
	case FUSE_NOTIFY_INVAL_INODE:
		return decode_inode_changed(body, bytes, notification);
	case FUSE_NOTIFY_INVAL_ENTRY:
		return decode_entry_changed(body, bytes, notification);
	case FUSE_NOTIFY_DELETE:
		return decode_entry_removed(body, bytes, notification);
	default:
		/* Of the others (poll, store, retrieve, resend) none concerns a cache of attributes and names. */
		return 0;
	}
}
