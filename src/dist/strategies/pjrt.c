/* Finds the devices of a PJRT plug-in, through the part of its C API that pjrt_api.h declares. */
#include "lockstep/pjrt.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/strategies/pjrt_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An lk_pjrt that is being filled in, and the plug-in's client that is asked for it. The client is destroyed before the
 * caller gets the lk_pjrt. */
typedef struct finding {
    lk_pjrt *pjrt;
    const char *path;
    const lk_pjrt_api *api;
    lk_pjrt_client *client;
} finding;

/* --- questions ---------------------------------------------------------------------------------------------------- */

enum { MAX_TEXT = 1024, MAX_DEVICES = 1 << 16 };

/* Copies a text of the plug-in as one line of at most MAX_TEXT characters. The caller frees it with lk__free. */
static lk_status pjrt_copy_text(const char *text, size_t size, const char **copy)
{
    size_t kept = text ? size : 0;
    if (kept > MAX_TEXT)
        kept = MAX_TEXT;
    char *line = lk__calloc(kept + 1, 1);
    if (!line)
        return LK_ERR_MEMORY;
    for (size_t i = 0; i < kept; i++)
        line[i] = (char)((unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i]);
    while (kept > 0 && line[kept - 1] == ' ')
        line[--kept] = '\0';
    *copy = line;
    return LK_OK;
}

static void pjrt_free_text(const char *text)
{
    lk__free((void *)(uintptr_t)text);
}

/* error NULL: LK_OK. Else fails with the error's message, and destroys the error. */
static lk_status pjrt_check(const finding *f, const char *what, lk_pjrt_error *error)
{
    lk_pjrt_read_error read = {.head = {sizeof read, NULL}, .error = error};
    lk_pjrt_destroy_error destroy = {.head = {sizeof destroy, NULL}, .error = error};
    const char *message = NULL;
    if (!error)
        return LK_OK;
    f->api->error_message(&read);
    lk_status status = pjrt_copy_text(read.message, read.message_size, &message);
    f->api->error_destroy(&destroy);
    if (status == LK_OK)
        status = lk__fail(LK_ERR_BACKEND, "%s: %s: %s", f->path, what, message);
    pjrt_free_text(message);
    return status;
}

static lk_status pjrt_client_text(const finding *f, const char *what, lk_pjrt_error *(*ask)(lk_pjrt_client_text *args),
                                  const char **copy)
{
    lk_pjrt_client_text args = {.head = {sizeof args, NULL}, .client = f->client};
    LK_TRY(pjrt_check(f, what, ask(&args)));
    return pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_describe_device(const finding *f, lk_pjrt_device *device, const char **copy)
{
    lk_pjrt_describe_device get = {.head = {sizeof get, NULL}, .device = device};
    LK_TRY(pjrt_check(f, "a device's description", f->api->device_description(&get)));
    lk_pjrt_description_text args = {.head = {sizeof args, NULL}, .description = get.description};
    LK_TRY(pjrt_check(f, "a device's description", f->api->description_debug_text(&args)));
    return pjrt_copy_text(args.text, args.text_size, copy);
}

static lk_status pjrt_list_devices(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_list_devices args = {.head = {sizeof args, NULL}, .client = f->client};
    LK_TRY(pjrt_check(f, "the list of devices", f->api->client_addressable_devices(&args)));
    if (args.n_devices > MAX_DEVICES)
        LK_FAIL(LK_ERR_BACKEND, "%s: says that it has %zu devices", f->path, args.n_devices);
    const char **devices = lk__calloc(args.n_devices + 1, sizeof *devices);
    if (!devices)
        return LK_ERR_MEMORY;
    pjrt->devices = devices;
    for (size_t d = 0; d < args.n_devices; d++) {
        LK_TRY(pjrt_describe_device(f, args.devices[d], &devices[d]));
        pjrt->n_devices++;
    }
    return LK_OK;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

static lk_status pjrt_check_version(const finding *f)
{
    const lk_pjrt_api *api = f->api;
    if (!api || api->head.size < offsetof(lk_pjrt_api, error_destroy))
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: " LK_PJRT_SYMBOL " gives no table of PJRT's functions", f->path);
    if (api->version.major != LK_PJRT_MAJOR)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: is built for PJRT %d.%d; versions %d.x are known", f->path, api->version.major,
                api->version.minor, LK_PJRT_MAJOR);
    if (api->head.size < sizeof *api)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: its table of functions (PJRT %d.%d) has %zu bytes, at least %zu are needed",
                f->path, api->version.major, api->version.minor, api->head.size, sizeof *api);
    return LK_OK;
}

/* The plug-in is never unloaded: it starts threads, whose code must stay. */
static lk_status pjrt_load(finding *f)
{
    void *library = dlopen(f->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        LK_FAIL(LK_ERR_DEVICE, "PJRT plug-in: %s", dlerror());
    lk_pjrt_api_fn get;
    *(void **)&get = dlsym(library, LK_PJRT_SYMBOL);
    if (!get) {
        dlclose(library);
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: is no PJRT plug-in: it exports no " LK_PJRT_SYMBOL, f->path);
    }
    f->api = get();
    return pjrt_check_version(f);
}

static lk_status pjrt_ask(finding *f)
{
    lk_pjrt *pjrt = f->pjrt;
    lk_pjrt_head initialize = {sizeof initialize, NULL};
    lk_pjrt_create_client create = {.head = {sizeof create, NULL}};
    LK_TRY(pjrt_copy_text(f->path, strlen(f->path), &pjrt->path));
    LK_TRY(pjrt_load(f));
    pjrt->major = f->api->version.major;
    pjrt->minor = f->api->version.minor;
    LK_TRY(pjrt_check(f, "its set-up", f->api->initialize(&initialize)));
    LK_TRY(pjrt_check(f, "a client", f->api->client_create(&create)));
    f->client = create.client;
    LK_TRY(pjrt_client_text(f, "the platform's name", f->api->client_platform, &pjrt->platform));
    LK_TRY(pjrt_client_text(f, "the platform's version", f->api->client_version, &pjrt->version));
    return pjrt_list_devices(f);
}

static lk_status pjrt_close_client(finding *f)
{
    lk_pjrt_destroy_client args = {.head = {sizeof args, NULL}, .client = f->client};
    return f->client ? pjrt_check(f, "the end of a client", f->api->client_destroy(&args)) : LK_OK;
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
    finding f = {.path = pjrt_path_is_named(path) ? path : lk_pjrt_default_path()};
    *pjrt = NULL;
    if (!f.path)
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
        pjrt_free_text(pjrt->devices[d]);
    lk__free((void *)(uintptr_t)pjrt->devices);
    pjrt_free_text(pjrt->version);
    pjrt_free_text(pjrt->platform);
    pjrt_free_text(pjrt->path);
    lk__free(pjrt);
}
