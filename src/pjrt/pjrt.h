/* Devices of a PJRT plug-in: the functions of their lk_backend. */
#pragma once

#include "core/backend.h"
#include "pjrt/lower.h"

extern const lk_kernel_table lk__pjrt_table;
extern const lk_offload lk__pjrt_offload;
extern const lk_modules lk__pjrt_modules;
extern const lk_choices lk__pjrt_choices;

/* Kind "pjrt" stands for all plug-ins, kind "tpu" only for one whose platform is "tpu". */
int lk__pjrt_available(void);
int lk__tpu_available(void);
lk_status lk__pjrt_describe(int index, char *text, int size);
lk_status lk__pjrt_describe_kind(char *text, int size);
lk_status lk__pjrt_open(lk_device *device, void **state);
void lk__pjrt_close(lk_device *device, void *state);
void *lk__pjrt_alloc(void *self, size_t bytes);
void lk__pjrt_free(void *self, void *data);

/* Sets *file to `path`, or to lk_pjrt_default_path if that is NULL or empty. Errors: LK_ERR_NOT_FOUND. */
lk_status lk__pjrt_file(const char *path, const char **file);

/* Lowers calls to one module: see lk_modules.compile and lk__lowering_end. */
lk_status lk__pjrt_lower(const lk_call *calls, int n, bool (*keeps)(void *user, lk_storage *storage), void *user,
                         lk_lowered *lowered);

/* Runs one call as a module of its own. */
lk_status lk__pjrt_call(lk_call *call);
