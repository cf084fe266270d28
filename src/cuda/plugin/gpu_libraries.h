/* The handles of cuBLASLt and cuDNN, and the cache of chosen algorithms, for gpu_matmul.c and gpu_conv.c. Both belong
 * to a stream and its branches, and so to one thread at a time: nothing here is locked. Each stream has a workspace of
 * its own. */
#pragma once

#include "cuda/plugin/gpu_direct_conv.h"
#include "cuda/plugin/gpu_library_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same for every GPU and every problem, so that the choice of an algorithm does not depend on free memory. */
enum { LK_GPU_WORKSPACE_BYTES = 256 << 20 };

/* A problem and the algorithm chosen for it; must be the first member of a larger struct. */
enum { LK_GPU_KEY_WORDS = 24, LK_GPU_CACHE_LISTS = 64 };
typedef struct lk_gpu_problem {
    struct lk_gpu_problem *next;
    int64_t key[LK_GPU_KEY_WORDS];
    lk_gpu_choice choice; /* its name is that of the library's algorithm; "" if it has none */
    bool has_run;         /* the library has loaded its kernels */
} lk_gpu_problem;

typedef struct lk_gpu_cache {
    lk_gpu_problem *lists[LK_GPU_CACHE_LISTS];
} lk_gpu_cache;

struct lk_gpu_libraries {
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    int capability;                         /* the GPU's, 86 for 8.6; 0: not known */
    char machine[384];                      /* all that a plan depends on besides its problem */
    cudnnBackendDescriptor_t described_gpu; /* plans are made for it if `dnn` is NULL: tests/gpu/cudnn_plans.c */
    lk_gpu_cache products, convolutions;
    lk_gpu_cache products_of_parts, convolutions_of_parts; /* with the algorithms of those above */
};

/* NULL: not in the cache. */
lk_gpu_problem *lk__gpu_cache_find(const lk_gpu_cache *cache, const int64_t key[LK_GPU_KEY_WORDS]);

/* Sets problem->key, and adds the problem. */
void lk__gpu_cache_add(lk_gpu_cache *cache, lk_gpu_problem *problem, const int64_t key[LK_GPU_KEY_WORDS]);

/* Tells engines apart in a key: FNV-1a. 0: the library chooses. */
static inline int64_t lk__gpu_hash_of_engine(const char *engine)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = engine; c && *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return engine ? (int64_t)hash : 0;
}

/* Free the entries of gpu_matmul.c, and of gpu_conv.c. */
void lk__gpu_products_free(lk_gpu_cache *cache);
void lk__gpu_convolutions_free(lk_gpu_cache *cache);

/* lk_gpu_driver.choose for a product, and for a convolution. */
lk_gpu_status lk__gpu_choose_product(lk_gpu_stream *stream, lk_gpu_choice *choice);
lk_gpu_status lk__gpu_choose_convolution(lk_gpu_stream *stream, lk_gpu_choice *choice);

/* Likewise lk_gpu_driver.engines. */
lk_gpu_status lk__gpu_product_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most,
                                      int *n);
lk_gpu_status lk__gpu_convolution_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names,
                                          int most, int *n);

#ifdef __cplusplus
}
#endif
