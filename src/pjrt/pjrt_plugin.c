#include "pjrt/pjrt_plugin.h"
#include "base/mem.h"

#include <dlfcn.h>

enum { MAX_TEXT = 1024, MAX_DEVICES = 1 << 16 };

lk_status lk__pjrt_copy_text(const char *text, size_t size, const char **copy)
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

void lk__pjrt_free_text(const char *text)
{
    lk__free((void *)(uintptr_t)text);
}

lk_status lk__pjrt_check(const lk_pjrt_plugin *plugin, const char *what, lk_pjrt_error *error)
{
    lk_pjrt_read_error read = {.head = {sizeof read, NULL}, .error = error};
    lk_pjrt_destroy_error destroy = {.head = {sizeof destroy, NULL}, .error = error};
    const char *message = NULL;
    if (!error)
        return LK_OK;
    plugin->api->error_message(&read);
    lk_status status = lk__pjrt_copy_text(read.message, read.message_size, &message);
    plugin->api->error_destroy(&destroy);
    if (status == LK_OK)
        status = lk__fail(LK_ERR_BACKEND, "%s: %s: %s", plugin->path, what, message);
    lk__pjrt_free_text(message);
    return status;
}

static lk_status pjrt_plugin_check_version(const lk_pjrt_plugin *plugin)
{
    const lk_pjrt_api *api = plugin->api;
    if (!api || api->head.size < offsetof(lk_pjrt_api, error_destroy))
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: " LK_PJRT_SYMBOL " gives no table of PJRT's functions", plugin->path);
    if (api->version.major != LK_PJRT_MAJOR)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: is built for PJRT %d.%d; versions %d.x are known", plugin->path,
                api->version.major, api->version.minor, LK_PJRT_MAJOR);
    if (api->head.size < sizeof *api)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: its table of functions (PJRT %d.%d) has %zu bytes, at least %zu are needed",
                plugin->path, api->version.major, api->version.minor, api->head.size, sizeof *api);
    return LK_OK;
}

/* The plug-in is never unloaded: it starts threads, whose code must stay. */
lk_status lk__pjrt_load(lk_pjrt_plugin *plugin)
{
    lk_pjrt_head initialize = {sizeof initialize, NULL};
    void *library = dlopen(plugin->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        LK_FAIL(LK_ERR_DEVICE, "PJRT plug-in: %s", dlerror());
    lk_pjrt_api_fn get;
    *(void **)&get = dlsym(library, LK_PJRT_SYMBOL);
    if (!get) {
        dlclose(library);
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: is no PJRT plug-in: it exports no " LK_PJRT_SYMBOL, plugin->path);
    }
    plugin->api = get();
    LK_TRY(pjrt_plugin_check_version(plugin));
    return lk__pjrt_check(plugin, "its set-up", plugin->api->initialize(&initialize));
}

lk_status lk__pjrt_list_devices(const lk_pjrt_plugin *plugin, lk_pjrt_client *client, lk_pjrt_list_devices *list)
{
    *list = (lk_pjrt_list_devices){.head = {sizeof *list, NULL}, .client = client};
    LK_TRY(lk__pjrt_check(plugin, "the list of devices", plugin->api->client_addressable_devices(list)));
    if (list->n_devices > MAX_DEVICES)
        LK_FAIL(LK_ERR_BACKEND, "%s: says that it has %zu devices", plugin->path, list->n_devices);
    return LK_OK;
}
