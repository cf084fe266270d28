/* What a stream has of cuBLASLt and cuDNN, and what both files that use them share. Handles and everything that was
 * chosen belong to one stream and those that were opened beside it, and so to one thread at a time: nothing here is
 * locked. Each stream has a workspace of its own. */
#ifndef LK_CUDA_GPU_LIBRARIES_H
#define LK_CUDA_GPU_LIBRARIES_H

#include "cuda/gpu_direct_conv.h"
#include "cuda/gpu_plugin.h"

#include <cublasLt.h>
#include <cudnn_graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same for every GPU and every problem: what runs is a function of the problem, not of the memory that is left. */
enum { LK_GPU_WORKSPACE_BYTES = 256 << 20 };

/* A problem and what was chosen for it; the first member of a larger struct. */
enum { LK_GPU_KEY_WORDS = 24, LK_GPU_CACHE_LISTS = 64 };
typedef struct lk_gpu_problem {
    struct lk_gpu_problem *next;
    int64_t key[LK_GPU_KEY_WORDS];
    lk_gpu_choice choice; /* name: of the library's own part, "" where it has nothing */
} lk_gpu_problem;

typedef struct lk_gpu_cache {
    lk_gpu_problem *lists[LK_GPU_CACHE_LISTS];
} lk_gpu_cache;

struct lk_gpu_libraries {
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    lk_gpu_cache products, convolutions;
};

/* NULL: it is not there. */
lk_gpu_problem *lk__gpu_cache_find(const lk_gpu_cache *cache, const int64_t key[LK_GPU_KEY_WORDS]);

/* Adds `problem`, of which the key is set here. */
void lk__gpu_cache_add(lk_gpu_cache *cache, lk_gpu_problem *problem, const int64_t key[LK_GPU_KEY_WORDS]);

/* Frees all that gpu_matmul.c and gpu_conv.c have put there. */
void lk__gpu_products_free(lk_gpu_cache *cache);
void lk__gpu_convolutions_free(lk_gpu_cache *cache);

/* lk_gpu_driver.choose for a product, and for a convolution. */
lk_gpu_status lk__gpu_choose_product(lk_gpu_stream *stream, lk_gpu_choice *choice);
lk_gpu_status lk__gpu_choose_convolution(lk_gpu_stream *stream, lk_gpu_choice *choice);

/* LK_GPU_OK, or the status that an error stands for, with a text that says what was being done. */
lk_gpu_status lk__gpu_check_blas(cublasStatus_t status, const char *what);
lk_gpu_status lk__gpu_check_dnn(cudnnStatus_t status, const char *what);

#ifdef __cplusplus
}
#endif

#endif
