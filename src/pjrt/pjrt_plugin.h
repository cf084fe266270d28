/* Loading a plug-in, and its errors as statuses. */
#pragma once

#include "base/status.h"
#include "pjrt/pjrt_api.h"

typedef struct lk_pjrt_plugin {
    const char *path;
    const lk_pjrt_api *api;
} lk_pjrt_plugin;

/* Loads plugin->path, checks its version, sets plugin->api and lets the plug-in set itself up. The plug-in is never
 * unloaded. Errors: LK_ERR_DEVICE (it cannot be loaded), LK_ERR_UNSUPPORTED (not a plug-in, or of an unknown version),
 * LK_ERR_BACKEND. */
lk_status lk__pjrt_load(lk_pjrt_plugin *plugin);

/* error NULL: LK_OK. Else destroys the error and fails with LK_ERR_BACKEND and its message, in which `what` says what
 * was asked for. */
lk_status lk__pjrt_check(const lk_pjrt_plugin *plugin, const char *what, lk_pjrt_error *error);

/* Copies a text of the plug-in as one line of bounded length. The caller frees it with lk__pjrt_free_text. Errors:
 * LK_ERR_MEMORY. */
lk_status lk__pjrt_copy_text(const char *text, size_t size, const char **copy);
void lk__pjrt_free_text(const char *text); /* NULL is fine */

/* The addressable devices, which the client owns. */
lk_status lk__pjrt_list_devices(const lk_pjrt_plugin *plugin, lk_pjrt_client *client, lk_pjrt_list_devices *list);
