/* The CUDA backend's tables and functions, which backends/registry.c lists. core/backend.h says what each must do. */
#pragma once

#include "core/backend.h"

extern const lk_kernel_table lk__cuda_table;
extern const lk_offload lk__cuda_offload;
extern const lk_graphs lk__cuda_graphs;
extern const lk_choices lk__cuda_choices;
extern const lk_links_table lk__cuda_links;

bool lk__cuda_merges(const lk_call *one, const lk_call *all);

/* The number of GPUs that this process may use; 0 without the plug-in, a driver or a GPU. */
int lk__cuda_available(void);

/* Returns whether this machine seems to have an NVIDIA driver, or $LOCKSTEP_CUDA_PLUGIN is set. Does not load the
 * plug-in and its large libraries to find out. */
bool lk__cuda_has_driver(void);

lk_status lk__cuda_describe(int index, char *text, int size);
lk_status lk__cuda_identify(int index, lk_device_identity *identity);
lk_status lk__cuda_describe_kind(char *text, int size);
const char *lk__cuda_bf16_is_fast(const lk_device *device);

lk_status lk__cuda_open(lk_device *device, void **state);
void lk__cuda_close(lk_device *device, void *state);
lk_status lk__cuda_implementations(lk_device *device, lk_implementation_fn visit, void *user);
void lk__cuda_enter(lk_device *device, void *state);
void *lk__cuda_alloc(void *device, size_t bytes);
void lk__cuda_free(void *device, void *data);
lk_status lk__cuda_to_plain(lk_device *device, const lk_tensor *x, void *plain);
lk_status lk__cuda_measure_peak(lk_device *device, lk_dtype dtype, double *flops);
lk_status lk__cuda_measure_copy(lk_device *device, double *bytes);
