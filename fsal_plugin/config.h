/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What nfs-ganesha's headers want to know of how ganesha was built: the file that
 * its cmake writes from config-h.in.cmake, cut down to what the headers look at,
 * with the answers of Debian's package 4.3-2.
 *
 * These switches decide the layout of shared structures, so they must be those of
 * the installed ganesha.nfsd: 9P, NLM, RQUOTA, DBUS and GSS are in; DEBUG_SAL,
 * ENABLE_LOCKTRACE and USE_LTTNG are not.
 */

#ifndef CONFIG_H
#define CONFIG_H

#define LINUX 1
#define LITTLEEND 1
#define NFS_GANESHA 1
#define _LGPL_SOURCE 1

#define USE_NFSIDMAP 1
#define USE_DBUS 1
#define USE_CAPS 1
#define USE_BLKID 1
#define _USE_9P 1
#define _USE_NFS3 1
#define _USE_NLM 1
#define _USE_RQUOTA 1
#define USE_NFSACL3 1
#define RPCBIND 1
#define HAVE_KRB5 1
#define _HAVE_GSSAPI 1
#define GSH_CAN_HOST_LOCAL_FS 1

#define HAVE_STRING_H 1
#define HAVE_STRNLEN 1
#define HAVE_DAEMON 1
#define HAVE_URCU_REF_GET_UNLESS_ZERO 1

#endif
