/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Changes by others, passed on to ganesha's cache by a thread of their own.
 */

#ifndef TOMBOLO_FSAL_NOTIFY_H
#define TOMBOLO_FSAL_NOTIFY_H

#include "fsal_tombolo.h"

struct tombolo_fsal_notifier *tombolo_fsal_notifier_new(struct tombolo_fsal_export *export);
/* Nothing is passed on before this.  Returns 0 or an errno. */
int tombolo_fsal_notifier_start(struct tombolo_fsal_notifier *notifier);
/* Ends the thread; what is heard after this is forgotten. */
void tombolo_fsal_notifier_stop(struct tombolo_fsal_notifier *notifier);
void tombolo_fsal_notifier_free(struct tombolo_fsal_notifier *notifier);

/* For the session's threads: they only queue, and never wait.  `notifier` is a struct tombolo_fsal_notifier. */
void tombolo_fsal_notified(void *notifier, const struct tombolo_wire_notification *notification);
void tombolo_fsal_resumed(void *notifier, bool rebooted);

#endif
