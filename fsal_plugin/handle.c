/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Objects, and the handles that clients keep of them.
 *
 * A handle names a share by the inode number of its root and an object by its own; a
 * store besides the first has numbers of its own, and a file system's number that tells them.
 * Numbers are never used again, so a handle is good or stale for ever, over
 * restarts of ganesha and of the daemon.  The bytes that clients keep are also the
 * key of ganesha's cache.
 *
 * Owns the layout of handles, and the memory of objects.  What an object carries belongs
 * to others: its reservations to reservations.c, recent attributes to recent.c, the count of
 * stateless opens to open.c.
 */

#include "fsal_tombolo.h"
#include "attributes.h"
#include "errors.h"
#include "handle.h"
#include "operations.h"

/* ---- objects ---- */

struct tombolo_fsal_object *tombolo_fsal_object_new(struct tombolo_fsal_export *export, uint64_t inode, uint32_t mode)
{
	struct tombolo_fsal_object *object = gsh_calloc(1, sizeof(*object));

	object->handle = (struct tombolo_fsal_handle){
		.magic = TOMBOLO_FSAL_HANDLE_MAGIC,
		.version = TOMBOLO_FSAL_HANDLE_VERSION,
		.file_system = htole32(export->file_system),
		.root = htole64(export->root),
		.inode = htole64(inode),
	};
	PTHREAD_MUTEX_init(&object->recent.lock, NULL);
	object->object.obj_ops = &tombolo_fsal_module_of(export)->object_ops;
	object->object.fileid = inode;
	object->object.fsid.major = export->root;
	object->object.fsid.minor = export->file_system;
	/* Enters the module's list, which tombolo_fsal_invalidate_all() goes through. */
	fsal_obj_handle_init(&object->object, &export->export, posix2fsal_type(mode));
	return object;
}

static void release(struct fsal_obj_handle *object)
{
	fsal_obj_handle_fini(object);
	PTHREAD_MUTEX_destroy(&tombolo_fsal_object_of(object)->recent.lock);
	gsh_free(tombolo_fsal_object_of(object));
}

/* Two objects of one file met: the second one, which nobody else has seen, is about to be released. */
static fsal_status_t merge(struct fsal_obj_handle *original, struct fsal_obj_handle *duplicate)
{
	struct tombolo_fsal_object *to = tombolo_fsal_object_of(original);
	struct tombolo_fsal_object *from = tombolo_fsal_object_of(duplicate);
	fsal_status_t status;

	if (original->type != REGULAR_FILE || duplicate->type != REGULAR_FILE)
		return tombolo_fsal_success();
	status = merge_share(original, &to->share, &from->share);
	if (FSAL_IS_SUCCESS(status))
		(void)atomic_add_int32_t(&to->stateless_opens, from->stateless_opens);
	return status;
}

/* ---- handles ---- */

static fsal_status_t handle_to_wire(const struct fsal_obj_handle *object, fsal_digesttype_t type,
				    struct gsh_buffdesc *description)
{
	const struct tombolo_fsal_object *self = container_of(object, const struct tombolo_fsal_object, object);

	(void)type;
	if (description->len < sizeof(self->handle))
		return fsalstat(ERR_FSAL_TOOSMALL, 0);
	memcpy(description->addr, &self->handle, sizeof(self->handle));
	description->len = sizeof(self->handle);
	return tombolo_fsal_success();
}

static void handle_to_key(struct fsal_obj_handle *object, struct gsh_buffdesc *description)
{
	description->addr = &tombolo_fsal_object_of(object)->handle;
	description->len = sizeof(struct tombolo_fsal_handle);
}

static bool is_well_formed(const struct gsh_buffdesc *description, struct tombolo_fsal_handle *handle)
{
	static const uint8_t zeroes[sizeof(handle->reserved)];

	if (description->len != sizeof(*handle))
		return false;
	memcpy(handle, description->addr, sizeof(*handle));
	return handle->magic == TOMBOLO_FSAL_HANDLE_MAGIC && handle->version == TOMBOLO_FSAL_HANDLE_VERSION &&
	       memcmp(handle->reserved, zeroes, sizeof(zeroes)) == 0 && handle->root != 0 && handle->inode != 0;
}

/* Clients may send anything. */
static fsal_status_t wire_to_host(struct fsal_export *export, fsal_digesttype_t type, struct gsh_buffdesc *description,
				  int flags)
{
	struct tombolo_fsal_handle handle;

	(void)export;
	(void)type;
	(void)flags;
	return is_well_formed(description, &handle) ? tombolo_fsal_success() : fsalstat(ERR_FSAL_BADHANDLE, 0);
}

/* The object of an inode, if it is there. */
static fsal_status_t object_of_inode(struct tombolo_fsal_export *export, uint64_t inode,
				     struct fsal_obj_handle **object, struct fsal_attrlist *attributes_out)
{
	struct fuse_attr attributes;
	fsal_status_t status = tombolo_fsal_fetch_attributes(export, inode, &attributes);

	if (FSAL_IS_ERROR(status))
		return status;
	status = tombolo_fsal_attributes_give(export, inode, &attributes, attributes_out);
	if (FSAL_IS_ERROR(status))
		return status;
	*object = &tombolo_fsal_object_new(export, inode, attributes.mode)->object;
	return status;
}

static fsal_status_t create_handle(struct fsal_export *fsal_export, struct gsh_buffdesc *description,
				   struct fsal_obj_handle **object, struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_export *export = tombolo_fsal_export_of(fsal_export);
	struct tombolo_fsal_handle handle;
	fsal_status_t status;

	*object = NULL;
	if (!is_well_formed(description, &handle))
		return fsalstat(ERR_FSAL_BADHANDLE, 0);
	/* Another share was exported under this number once. */
	if (le64toh(handle.root) != export->root || le32toh(handle.file_system) != export->file_system)
		return fsalstat(ERR_FSAL_STALE, ESTALE);
	status = object_of_inode(export, le64toh(handle.inode), object, attributes_out);
	return status.major == ERR_FSAL_NOENT ? fsalstat(ERR_FSAL_STALE, ESTALE) : status;
}

/* Paths are names of exports to ganesha; each is the root of its share. */
static fsal_status_t lookup_path(struct fsal_export *fsal_export, const char *path, struct fsal_obj_handle **object,
				 struct fsal_attrlist *attributes_out)
{
	struct tombolo_fsal_export *export = tombolo_fsal_export_of(fsal_export);

	(void)path;
	*object = NULL;
	return object_of_inode(export, export->root, object, attributes_out);
}

/* ---- ganesha's cache ---- */

static void invalidate_handle(struct tombolo_fsal_export *export, struct tombolo_fsal_handle *handle, uint32_t flags)
{
	const struct fsal_up_vector *up_ops = export->export.up_ops;
	struct gsh_buffdesc key = { .addr = handle, .len = sizeof(*handle) };
	fsal_status_t status = up_ops->invalidate(up_ops, &key, flags);

	if (FSAL_IS_ERROR(status))
		LogWarn(COMPONENT_FSAL_UP, "inode %" PRIu64 " could not be invalidated: %s", le64toh(handle->inode),
			msg_fsal_err(status.major));
}

void tombolo_fsal_invalidate(struct tombolo_fsal_export *export, uint64_t inode, uint32_t flags)
{
	struct tombolo_fsal_handle handle = {
		.magic = TOMBOLO_FSAL_HANDLE_MAGIC,
		.version = TOMBOLO_FSAL_HANDLE_VERSION,
		.file_system = htole32(export->file_system),
		.root = htole64(export->root),
		.inode = htole64(inode),
	};

	invalidate_handle(export, &handle, flags);
}

/* Copies, because an object may go while the cache is told of another. */
static struct tombolo_fsal_handle *handles_of(const struct tombolo_fsal_export *export, size_t *count)
{
	struct fsal_module *module = export->export.fsal;
	struct tombolo_fsal_handle *handles;
	struct glist_head *node;
	size_t size = 0;

	*count = 0;
	PTHREAD_RWLOCK_rdlock(&module->lock);
	glist_for_each(node, &module->handles)
		size++;
	handles = gsh_malloc((size + 1) * sizeof(*handles));
	glist_for_each(node, &module->handles) {
		const struct tombolo_fsal_object *object =
			tombolo_fsal_object_of(glist_entry(node, struct fsal_obj_handle, handles));

		if (object->handle.root == htole64(export->root) &&
		    object->handle.file_system == htole32(export->file_system))
			handles[(*count)++] = object->handle;
	}
	PTHREAD_RWLOCK_unlock(&module->lock);
	return handles;
}

void tombolo_fsal_invalidate_all(struct tombolo_fsal_export *export)
{
	size_t count;
	struct tombolo_fsal_handle *handles = handles_of(export, &count);

	for (size_t i = 0; i < count; i++)
		invalidate_handle(export, &handles[i], FSAL_UP_INVALIDATE_CACHE);
	gsh_free(handles);
}

void tombolo_fsal_handle_ops_init(struct fsal_obj_ops *ops)
{
	ops->release = release;
	ops->merge = merge;
	ops->handle_to_wire = handle_to_wire;
	ops->handle_to_key = handle_to_key;
}

void tombolo_fsal_handle_export_ops_init(struct export_ops *ops)
{
	ops->lookup_path = lookup_path;
	ops->wire_to_host = wire_to_host;
	ops->create_handle = create_handle;
}
