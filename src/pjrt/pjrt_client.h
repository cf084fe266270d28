/* A client of a plug-in: devices, compiled modules, and buffers. Work is asynchronous: a buffer may be used at once,
 * and whatever uses it waits for what makes it. */
#pragma once

#include "lockstep/tensor.h"
#include "pjrt/pjrt_plugin.h"

typedef struct lk_pjrt_session {
    lk_pjrt_plugin plugin;
    lk_pjrt_client *client;
    lk_pjrt_device *const *devices;
    int n_devices;
    char platform[32];
} lk_pjrt_session;

/* A module, compiled for any of the client's devices. */
typedef struct lk_pjrt_loaded lk_pjrt_module;

lk_status lk__pjrt_session_open(const char *path, lk_pjrt_session **session);
void lk__pjrt_session_close(lk_pjrt_session *session); /* NULL is fine; its modules and buffers must be gone */

/* Bytes that a device could still allocate. A plug-in that does not tell, such as one for processors, uses the
 * process's memory: then it is what the system has free. */
lk_status lk__pjrt_memory_left(const lk_pjrt_session *session, int device, int64_t *bytes);

/* The options of every compilation: a serialized xla.CompileOptionsProto. */
extern const char lk__pjrt_options[];
extern const size_t lk__pjrt_options_size;

/* Describes StableHLO in MLIR's text to the compiler. `text` must stay. */
lk_pjrt_program lk__pjrt_program(const char *text, size_t size);

/* Compiles StableHLO in MLIR's text. */
lk_status lk__pjrt_module_compile(const lk_pjrt_session *session, const char *text, size_t size,
                                  lk_pjrt_module **module);
void lk__pjrt_module_free(const lk_pjrt_session *session, lk_pjrt_module *module);

/* A run of a module. Parameters whose memory the module gives to a result are lost, unless `kept` lists them. */
typedef struct lk_pjrt_run {
    lk_pjrt_module *module;
    int device;
    lk_pjrt_buffer *const *parameters;
    const int64_t *kept;
    lk_pjrt_buffer **results; /* set; the caller frees them */
    int n_parameters, n_kept;
    lk_pjrt_event *done; /* set; the caller hands it to lk__pjrt_event_wait or lk__pjrt_event_then */
} lk_pjrt_run;
lk_status lk__pjrt_run(const lk_pjrt_session *session, lk_pjrt_run *run);

/* A flat buffer of `count` elements. `data` may be reused on return. */
lk_status lk__pjrt_upload(const lk_pjrt_session *session, int device, lk_dtype dtype, int64_t count, const void *data,
                          lk_pjrt_buffer **buffer);
/* The same for a ui64 scalar. */
lk_status lk__pjrt_upload_step(const lk_pjrt_session *session, int device, uint64_t step, lk_pjrt_buffer **buffer);
/* Waits for the buffer, and copies all of its `bytes` bytes. */
lk_status lk__pjrt_download(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, void *to, size_t bytes);
/* To another device of the client. */
lk_status lk__pjrt_copy(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, int device, lk_pjrt_buffer **copy);
void lk__pjrt_buffer_free(const lk_pjrt_session *session, lk_pjrt_buffer *buffer); /* NULL is fine */

/* Waits for the event, and frees it. NULL is complete. Errors: that of the work. */
lk_status lk__pjrt_event_wait(const lk_pjrt_session *session, lk_pjrt_event *event);
/* Lets a thread of the plug-in, or this one, call `call` once the event is complete. `call` gets the error of the work
 * (NULL: none), which it destroys, and must free the event. */
lk_status lk__pjrt_event_then(const lk_pjrt_session *session, lk_pjrt_event *event,
                              void (*call)(lk_pjrt_error *error, void *user), void *user);
void lk__pjrt_event_free(const lk_pjrt_session *session, lk_pjrt_event *event);
