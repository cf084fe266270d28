/* CUDA devices, as backends/registry.c sees them. */
#ifndef LK_CUDA_CUDA_H
#define LK_CUDA_CUDA_H

#include "core/backend.h"

extern const lk_kernel_table lk__cuda_table;
extern const lk_offload lk__cuda_offload;
extern const lk_graphs lk__cuda_graphs;
extern const lk_choices lk__cuda_choices;
extern const lk_links_table lk__cuda_links;

/* GPUs that this process may use; 0 without the plug-in, a driver or a GPU. */
int lk__cuda_available(void);

/* Whether the machine shows signs of a GPU's driver, or somebody has named the plug-in: found out without loading the
 * plug-in and the libraries that it brings along. */
bool lk__cuda_has_driver(void);

lk_status lk__cuda_describe(int index, char *text, int size);
lk_status lk__cuda_identify(int index, lk_device_identity *identity);
lk_status lk__cuda_describe_kind(char *text, int size);

lk_status lk__cuda_open(lk_device *device, void **state);
void lk__cuda_close(lk_device *device, void *state);
lk_status lk__cuda_implementations(lk_device *device, lk_implementation_fn visit, void *user);
void lk__cuda_enter(lk_device *device, void *state);
void *lk__cuda_alloc(void *device, size_t bytes);
void lk__cuda_free(void *device, void *data);
lk_status lk__cuda_to_plain(lk_device *device, const lk_tensor *x, void *plain);
lk_status lk__cuda_measure_peak(lk_device *device, lk_dtype dtype, double *flops);
lk_status lk__cuda_measure_copy(lk_device *device, double *bytes);

#endif
