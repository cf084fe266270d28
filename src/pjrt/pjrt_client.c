#include "pjrt/pjrt_client.h"
#include "base/mem.h"
#include "core/trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Frees cannot tell the caller of a failure, and there is nothing to be done about one. */
static void pjrt_client_forget(const lk_pjrt_session *session, lk_pjrt_error *error)
{
    lk_pjrt_destroy_error destroy = {.head = {sizeof destroy, NULL}, .error = error};
    if (error)
        session->plugin.api->error_destroy(&destroy);
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static lk_status pjrt_client_list_devices(lk_pjrt_session *session)
{
    lk_pjrt_list_devices list;
    LK_TRY(lk__pjrt_list_devices(&session->plugin, session->client, &list));
    session->devices = list.devices;
    session->n_devices = (int)list.n_devices;
    return LK_OK;
}

static lk_status pjrt_client_open(lk_pjrt_session *session)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_create_client create = {.head = {sizeof create, NULL}};
    LK_TRY(lk__pjrt_load(&session->plugin));
    LK_TRY(lk__pjrt_check(plugin, "a client", plugin->api->client_create(&create)));
    session->client = create.client;
    lk_pjrt_client_text name = {.head = {sizeof name, NULL}, .client = session->client};
    LK_TRY(lk__pjrt_check(plugin, "the platform's name", plugin->api->client_platform(&name)));
    snprintf(session->platform, sizeof session->platform, "%.*s", (int)(name.text_size < 31 ? name.text_size : 31),
             name.text ? name.text : "");
    return pjrt_client_list_devices(session);
}

lk_status lk__pjrt_session_open(const char *path, lk_pjrt_session **out)
{
    *out = NULL;
    lk_pjrt_session *session = lk__calloc(1, sizeof *session);
    if (!session)
        return LK_ERR_MEMORY;
    lk_status status = lk__pjrt_copy_text(path, strlen(path), &session->plugin.path);
    if (status == LK_OK)
        status = pjrt_client_open(session);
    if (status == LK_OK)
        *out = session;
    else
        lk__pjrt_session_close(session);
    return status;
}

/* The client ends even if it says that it could not. */
void lk__pjrt_session_close(lk_pjrt_session *session)
{
    if (!session)
        return;
    if (session->client) {
        lk_pjrt_destroy_client args = {.head = {sizeof args, NULL}, .client = session->client};
        lk_error_state kept;
        lk__error_save(&kept);
        lk__pjrt_check(&session->plugin, "the end of a client", session->plugin.api->client_destroy(&args));
        lk__error_restore(&kept);
    }
    lk__pjrt_free_text(session->plugin.path);
    lk__free(session);
}

lk_status lk__pjrt_memory_left(const lk_pjrt_session *session, int device, int64_t *bytes)
{
    lk_pjrt_memory_stats stats = {.head = {sizeof stats, NULL}, .device = session->devices[device]};
    lk_pjrt_error *error = session->plugin.api->memory_stats(&stats);
    if (!error && stats.limit.is_set) {
        *bytes = stats.limit.value - stats.in_use;
        return LK_OK;
    }
    pjrt_client_forget(session, error);
    *bytes = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return LK_OK;
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

/* executable_build_options {device_ordinal: -1, num_replicas: 1, num_partitions: 1}, compile_portable_executable: true,
 * so that one module runs on any device. */
const char lk__pjrt_options[] = "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x20\x01";
const size_t lk__pjrt_options_size = sizeof lk__pjrt_options - 1;

lk_pjrt_program lk__pjrt_program(const char *text, size_t size)
{
    static const char format[] = "mlir";
    return (lk_pjrt_program){.head = {sizeof(lk_pjrt_program), NULL},
                             .code = (char *)(uintptr_t)text,
                             .code_size = size,
                             .format = format,
                             .format_size = sizeof format - 1};
}

lk_status lk__pjrt_module_compile(const lk_pjrt_session *session, const char *text, size_t size,
                                  lk_pjrt_module **module)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_program program = lk__pjrt_program(text, size);
    lk_pjrt_compile args = {.head = {sizeof args, NULL},
                            .client = session->client,
                            .program = &program,
                            .options = lk__pjrt_options,
                            .options_size = lk__pjrt_options_size};
    LK_TRY(lk__pjrt_check(plugin, "compiling", plugin->api->compile(&args)));
    *module = args.loaded;
    return LK_OK;
}

void lk__pjrt_module_free(const lk_pjrt_session *session, lk_pjrt_module *module)
{
    lk_pjrt_destroy_loaded args = {.head = {sizeof args, NULL}, .loaded = module};
    pjrt_client_forget(session, session->plugin.api->loaded_destroy(&args));
}

lk_status lk__pjrt_run(const lk_pjrt_session *session, lk_pjrt_run *run)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_execute_options options = {
        .head = {sizeof options, NULL}, .kept = run->kept, .n_kept = (size_t)run->n_kept};
    lk_pjrt_execute args = {.head = {sizeof args, NULL},
                            .loaded = run->module,
                            .options = &options,
                            .arguments = &run->parameters,
                            .n_devices = 1,
                            .n_arguments = (size_t)run->n_parameters,
                            .results = &run->results,
                            .done = &run->done,
                            .device = session->devices[run->device]};
    run->done = NULL;
    return lk__pjrt_check(plugin, "running a module", plugin->api->execute(&args));
}

/* --- buffers ------------------------------------------------------------------------------------------------------ */

static int pjrt_client_type(lk_dtype dtype)
{
    static const int types[LK_DTYPE_COUNT] = {
        [LK_F32] = LK_PJRT_F32, [LK_BF16] = LK_PJRT_BF16, [LK_F64] = LK_PJRT_F64,
        [LK_I32] = LK_PJRT_S32, [LK_I64] = LK_PJRT_S64,   [LK_U8] = LK_PJRT_U8,
    };
    return types[dtype];
}

static lk_status pjrt_client_upload(const lk_pjrt_session *session, int device, int type, const int64_t *dims,
                                    int n_dims, const void *data, lk_pjrt_buffer **buffer)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_upload args = {.head = {sizeof args, NULL},
                           .client = session->client,
                           .data = data,
                           .type = type,
                           .dims = dims,
                           .n_dims = (size_t)n_dims,
                           .semantics = LK_PJRT_COPIED_DURING_CALL,
                           .device = session->devices[device]};
    LK_TRY(lk__pjrt_check(plugin, "a copy to a device", plugin->api->upload(&args)));
    *buffer = args.buffer;
    lk_status status = lk__pjrt_event_wait(session, args.done);
    if (status != LK_OK)
        lk__pjrt_buffer_free(session, args.buffer);
    return status;
}

lk_status lk__pjrt_upload(const lk_pjrt_session *session, int device, lk_dtype dtype, int64_t count, const void *data,
                          lk_pjrt_buffer **buffer)
{
    return pjrt_client_upload(session, device, pjrt_client_type(dtype), &count, 1, data, buffer);
}

lk_status lk__pjrt_upload_step(const lk_pjrt_session *session, int device, uint64_t step, lk_pjrt_buffer **buffer)
{
    return pjrt_client_upload(session, device, LK_PJRT_U64, NULL, 0, &step, buffer);
}

lk_status lk__pjrt_download(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, void *to, size_t bytes)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_download args = {.head = {sizeof args, NULL}, .buffer = buffer, .to = to, .to_size = bytes};
    int64_t began = lk__trace_begin();
    LK_TRY(lk__pjrt_check(plugin, "a copy from a device", plugin->api->download(&args)));
    lk_status status = lk__pjrt_event_wait(session, args.done);
    lk__trace_end(LK_TRACE_WAIT_RESULT, began, 0);
    return status;
}

lk_status lk__pjrt_copy(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, int device, lk_pjrt_buffer **copy)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_copy_to_device args = {.head = {sizeof args, NULL}, .buffer = buffer, .device = session->devices[device]};
    LK_TRY(lk__pjrt_check(plugin, "a copy between devices", plugin->api->copy_to_device(&args)));
    *copy = args.copy;
    return LK_OK;
}

void lk__pjrt_buffer_free(const lk_pjrt_session *session, lk_pjrt_buffer *buffer)
{
    lk_pjrt_of_buffer args = {.head = {sizeof args, NULL}, .buffer = buffer};
    if (buffer)
        pjrt_client_forget(session, session->plugin.api->buffer_destroy(&args));
}

/* --- events ------------------------------------------------------------------------------------------------------- */

void lk__pjrt_event_free(const lk_pjrt_session *session, lk_pjrt_event *event)
{
    lk_pjrt_of_event args = {.head = {sizeof args, NULL}, .event = event};
    if (event)
        pjrt_client_forget(session, session->plugin.api->event_destroy(&args));
}

lk_status lk__pjrt_event_wait(const lk_pjrt_session *session, lk_pjrt_event *event)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_of_event args = {.head = {sizeof args, NULL}, .event = event};
    if (!event)
        return LK_OK;
    lk_status status = lk__pjrt_check(plugin, "work on a device", plugin->api->event_await(&args));
    lk__pjrt_event_free(session, event);
    return status;
}

lk_status lk__pjrt_event_then(const lk_pjrt_session *session, lk_pjrt_event *event,
                              void (*call)(lk_pjrt_error *error, void *user), void *user)
{
    const lk_pjrt_plugin *plugin = &session->plugin;
    lk_pjrt_when_ready args = {.head = {sizeof args, NULL}, .event = event, .call = call, .user = user};
    return lk__pjrt_check(plugin, "waiting for work on a device", plugin->api->event_when_ready(&args));
}
