/* Lists the devices of a PJRT plug-in, with a client that is destroyed before the caller gets the list. */
#include "lockstep/pjrt.h"

#include "base/mem.h"
#include "base/status.h"
#include "pjrt/pjrt_plugin.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* An lk_pjrt that is being filled in, and the plug-in's client that is asked for it. */
typedef struct finding {
    lk_pjrt *pjrt;
    lk_pjrt_plugin plugin;
    lk_pjrt_client *client;
} finding;

static lk_status pjrt_client_text(const finding *f, const char *what, lk_pjrt_error *(*ask)(lk_pjrt_client_text *args),
                                  const char **copy)
{
    lk_pjrt_client_text args = {.head = {sizeof args, NULL}, .client = f->client};
    LK_TRY(lk__pjrt_check(&f->plugin, what, ask(&args)));
    return lk__pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_describe_device(const finding *f, lk_pjrt_device *device, const char **copy)
{
    const lk_pjrt_api *api = f->plugin.api;
    lk_pjrt_describe_device get = {.head = {sizeof get, NULL}, .device = device};
    LK_TRY(lk__pjrt_check(&f->plugin, "a device's description", api->device_description(&get)));
    lk_pjrt_description_text args = {.head = {sizeof args, NULL}, .description = get.description};
    LK_TRY(lk__pjrt_check(&f->plugin, "a device's description", api->description_debug_text(&args)));
    return lk__pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_list_devices(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_list_devices list;
    LK_TRY(lk__pjrt_list_devices(&f->plugin, f->client, &list));
    const char **devices = lk__calloc(list.n_devices + 1, sizeof *devices);
    if (!devices)
        return LK_ERR_MEMORY;
    pjrt->devices = devices;
    for (size_t d = 0; d < list.n_devices; d++) {
        LK_TRY(pjrt_describe_device(f, list.devices[d], &devices[d]));
        pjrt->n_devices++;
    }
    return LK_OK;
}

static lk_status pjrt_ask(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_create_client create = {.head = {sizeof create, NULL}};
    LK_TRY(lk__pjrt_copy_text(f->plugin.path, strlen(f->plugin.path), &pjrt->path));
    LK_TRY(lk__pjrt_load(&f->plugin));
    const lk_pjrt_api *api = f->plugin.api;
    pjrt->major = api->version.major;
    pjrt->minor = api->version.minor;
    LK_TRY(lk__pjrt_check(&f->plugin, "a client", api->client_create(&create)));
    f->client = create.client;
    LK_TRY(pjrt_client_text(f, "the platform's name", api->client_platform, &pjrt->platform));
    LK_TRY(pjrt_client_text(f, "the platform's version", api->client_version, &pjrt->version));
    return pjrt_list_devices(f);
}

static lk_status pjrt_close_client(finding *f)
{
    lk_pjrt_destroy_client args = {.head = {sizeof args, NULL}, .client = f->client};
    return f->client ? lk__pjrt_check(&f->plugin, "the end of a client", f->plugin.api->client_destroy(&args)) : LK_OK;
}

static bool pjrt_path_is_named(const char *path)
{
    return path && *path;
}

const char *lk_pjrt_default_path(void)
{
    const char *path = getenv("PJRT_PLUGIN_LIBRARY_PATH");
    if (!pjrt_path_is_named(path))
        path = getenv("TPU_LIBRARY_PATH");
    return pjrt_path_is_named(path) ? path : NULL;
}

lk_status lk_pjrt_find(const char *path, lk_pjrt **pjrt)
{
    finding f = {.plugin.path = pjrt_path_is_named(path) ? path : lk_pjrt_default_path()};
    *pjrt = NULL;
    if (!f.plugin.path)
        LK_FAIL(LK_ERR_NOT_FOUND, "no PJRT plug-in is named: give its file, libtpu.so for TPUs, with --pjrt, "
                                  "$PJRT_PLUGIN_LIBRARY_PATH or $TPU_LIBRARY_PATH");
    f.pjrt = lk__calloc(1, sizeof *f.pjrt);
    if (!f.pjrt)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_ask(&f), closed = pjrt_close_client(&f);
    status = status != LK_OK ? status : closed;
    if (status != LK_OK) {
        lk_pjrt_release(f.pjrt);
        return status;
    }
    *pjrt = f.pjrt;
    return LK_OK;
}

void lk_pjrt_release(lk_pjrt *pjrt)
{
    if (!pjrt)
        return;
    for (int d = 0; d < pjrt->n_devices; d++)
        lk__pjrt_free_text(pjrt->devices[d]);
    lk__free((void *)(uintptr_t)pjrt->devices);
    lk__pjrt_free_text(pjrt->version);
    lk__pjrt_free_text(pjrt->platform);
    lk__pjrt_free_text(pjrt->path);
    lk__free(pjrt);
}
