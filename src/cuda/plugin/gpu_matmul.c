/* Products of matrices by cuBLASLt, which is column-major: row-major y = a b is column-major y' = b' a', so the
 * operands are swapped and nothing is transposed. */
#include "cuda/plugin/gpu_direct_matmul.h"
#include "cuda/plugin/gpu_libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct product {
    lk_gpu_problem problem;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, y;
    bool is_direct; /* gpu_direct_matmul.cu computes it; otherwise `algorithm` does */
    bool is_split;  /* of several parts: each runs alone, because the algorithm does not take them together */
    cublasLtMatmulAlgo_t algorithm;
} product;

void lk__gpu_products_free(lk_gpu_cache *cache)
{
    for (int i = 0; i < LK_GPU_CACHE_LISTS; i++) {
        while (cache->lists[i]) {
            lk_gpu_problem *next = cache->lists[i]->next;
            free(cache->lists[i]);
            cache->lists[i] = next;
        }
    }
}

/* --- describing a problem ----------------------------------------------------------------------------------------- */

static cudaDataType gpu_matmul_blas_type(lk_dtype dtype)
{
    return dtype == LK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static lk_gpu_status product_set(product *p, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
    return lk__gpu_check_blas(cublasLtMatmulDescSetAttribute(&p->operation, attribute, value, size),
                              "describe a product");
}

/* The heuristics must be asked with an address of the bias. This one stands for any: it has the alignment that every
 * bias has at least. */
static lk_gpu_status gpu_matmul_describe_bias(product *p, lk_dtype dtype)
{
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    int32_t type = (int32_t)gpu_matmul_blas_type(dtype);
    const void *somewhere = (const void *)(uintptr_t)LK_GPU_LIBRARY_ALIGNMENT;
    LK_GPU_TRY(product_set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    LK_GPU_TRY(product_set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    return product_set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere, sizeof somewhere);
}

/* Describes a row-major matrix [rows, columns], or one that is stored transposed. Our row is cuBLASLt's column, so the
 * row's length comes first. */
static lk_gpu_status gpu_matmul_describe_matrix(cublasLtMatrixLayoutOpaque_t *layout, lk_dtype dtype, int64_t rows,
                                                int64_t columns, bool transposed)
{
    int64_t length = transposed ? rows : columns, count = transposed ? columns : rows;
    return lk__gpu_check_blas(
        cublasLtMatrixLayoutInit(layout, gpu_matmul_blas_type(dtype), (uint64_t)length, (uint64_t)count, length),
        "describe a matrix");
}

static lk_gpu_status describe_product(product *p, const lk_gpu_matmul *m)
{
    bool is_tf32 = m->tf32 && m->dtype == LK_F32;
    cublasComputeType_t compute = is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int32_t first = m->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = m->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LK_GPU_TRY(lk__gpu_check_blas(cublasLtMatmulDescInit(&p->operation, compute, CUDA_R_32F), "describe a product"));
    LK_GPU_TRY(product_set(p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    LK_GPU_TRY(product_set(p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (m->bias)
        LK_GPU_TRY(gpu_matmul_describe_bias(p, m->y_dtype));
    LK_GPU_TRY(gpu_matmul_describe_matrix(&p->a, m->dtype, m->rows, m->inner, m->a_transposed));
    LK_GPU_TRY(gpu_matmul_describe_matrix(&p->b, m->dtype, m->inner, m->columns, m->b_transposed));
    return gpu_matmul_describe_matrix(&p->y, m->y_dtype, m->rows, m->columns, false);
}

/* --- choosing an algorithm ---------------------------------------------------------------------------------------- */

static lk_gpu_status gpu_matmul_set_preference(cublasLtMatmulPreferenceOpaque_t *preference)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = LK_GPU_WORKSPACE_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = LK_GPU_LIBRARY_ALIGNMENT;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                      sizeof workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment);
    return lk__gpu_check_blas(status, "set preferences");
}

/* If a sum is split its bits depend on the number of parts, which depends on the number of rows. */
static lk_gpu_status gpu_matmul_adds_in_one_sequence(const cublasLtMatmulAlgo_t *algorithm, bool *in_one)
{
    int32_t splits = 0;
    uint32_t reduction = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits, NULL);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                                      sizeof reduction, NULL);
    *in_one = (splits == 0 || splits == 1) && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
    return lk__gpu_check_blas(status, "look at an algorithm");
}

/* Writes "cublaslt:algo66_tile20_stages36_…": the parameters of an algorithm. */
static lk_gpu_status gpu_matmul_name_algorithm(const cublasLtMatmulAlgo_t *algorithm, char *name, size_t size)
{
    static const struct {
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        const char *text;
        size_t bytes;
    } parts[] = {
        {CUBLASLT_ALGO_CONFIG_ID, "algo", 4},
        {CUBLASLT_ALGO_CONFIG_TILE_ID, "_tile", 4},
        {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, "_swizzle", 4},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "_custom", 4},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, "_stages", 4},
        {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, "_inner", 2},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, "_cluster", 2},
    };
    int used = snprintf(name, size, "cublaslt:");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && (size_t)used < size; i++) {
        uint32_t word = 0;
        uint16_t half = 0;
        void *value = parts[i].bytes == sizeof half ? (void *)&half : (void *)&word;
        LK_GPU_TRY(lk__gpu_check_blas(
            cublasLtMatmulAlgoConfigGetAttribute(algorithm, parts[i].attribute, value, parts[i].bytes, NULL),
            "name an algorithm"));
        used += snprintf(name + used, size - (size_t)used, "%s%u", parts[i].text,
                         parts[i].bytes == sizeof half ? (unsigned)half : (unsigned)word);
    }
    return LK_GPU_OK;
}

/* The algorithms that keep the precision and add in one sequence, in the order of the heuristics. */
enum { MAX_ALGORITHMS = 32 };

typedef struct algorithms {
    cublasLtMatmulAlgo_t list[MAX_ALGORITHMS];
    int n;
} algorithms;

static lk_gpu_status gpu_matmul_list_algorithms(cublasLtHandle_t blas, product *p, algorithms *all)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[MAX_ALGORITHMS];
    int found = 0;
    all->n = 0;
    LK_GPU_TRY(gpu_matmul_set_preference(&preference));
    cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(blas, &p->operation, &p->b, &p->a, &p->y, &p->y, &preference,
                                                          MAX_ALGORITHMS, results, &found);
    if (asked != CUBLAS_STATUS_NOT_SUPPORTED) /* there is none */
        LK_GPU_TRY(lk__gpu_check_blas(asked, "list algorithms"));
    for (int i = 0; i < found; i++) {
        bool is_fine;
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > LK_GPU_WORKSPACE_BYTES)
            continue;
        LK_GPU_TRY(gpu_matmul_adds_in_one_sequence(&results[i].algo, &is_fine));
        if (is_fine)
            all->list[all->n++] = results[i].algo;
    }
    return LK_GPU_OK;
}

/* Takes the first algorithm, or the one of that name, and writes its name. */
static lk_gpu_status gpu_matmul_choose_algorithm(cublasLtHandle_t blas, const char *engine, product *p)
{
    algorithms all;
    char *name = p->problem.choice.name;
    size_t size = sizeof p->problem.choice.name;
    LK_GPU_TRY(gpu_matmul_list_algorithms(blas, p, &all));
    for (int i = 0; i < all.n; i++) {
        LK_GPU_TRY(gpu_matmul_name_algorithm(&all.list[i], name, size));
        p->algorithm = all.list[i];
        if (!engine || strcmp(engine, name) == 0)
            return LK_GPU_OK;
    }
    p->is_direct = true;
    snprintf(name, size, "direct");
    if (!engine || (all.n == 0 && strcmp(engine, name) == 0))
        return LK_GPU_OK;
    return lk__gpu_fail(LK_GPU_NO_ENGINE, "cuBLASLt does not offer %s for this product with one sequence of sums",
                        engine);
}

static lk_gpu_status gpu_matmul_make_product(lk_gpu_libraries *libraries, const lk_gpu_matmul *m, const int64_t *key,
                                             product **out)
{
    product *p = calloc(1, sizeof *p);
    if (!p)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory for a product");
    p->problem.choice = (lk_gpu_choice){.kernel = LK_GPU_MATMUL, .matmul = *m};
    p->problem.choice.matmul.parts = 0;
    lk_gpu_status status = describe_product(p, m);
    if (status == LK_GPU_OK)
        status = gpu_matmul_choose_algorithm(libraries->blas, m->engine, p);
    if (status != LK_GPU_OK) {
        free(p);
        return status;
    }
    p->problem.choice.matmul.engine = m->engine ? p->problem.choice.name : NULL; /* the caller's need not stay */
    lk__gpu_cache_add(&libraries->products, &p->problem, key);
    *out = p;
    return LK_GPU_OK;
}

/* Sets that there are `parts` matrices, `step` elements apart. */
static lk_gpu_status gpu_matmul_repeat(cublasLtMatrixLayoutOpaque_t *layout, int64_t parts, int64_t step)
{
    int32_t count = (int32_t)parts;
    LK_GPU_TRY(lk__gpu_check_blas(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "describe matrices"));
    return lk__gpu_check_blas(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
        "describe matrices");
}

/* Makes the product of all parts from that of one part, as a batch, whose products the algorithm computes as it would
 * alone. */
static lk_gpu_status gpu_matmul_make_parts(lk_gpu_libraries *libraries, const lk_gpu_matmul *m, const product *one,
                                           const int64_t *key, product **out)
{
    cublasLtMatmulHeuristicResult_t result;
    product *p = calloc(1, sizeof *p);
    if (!p)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory for a product");
    *p = *one;
    p->problem.has_run = false;
    lk_gpu_status status = gpu_matmul_repeat(&p->a, m->parts, m->rows * m->inner);
    if (status == LK_GPU_OK)
        status = gpu_matmul_repeat(&p->b, m->parts, m->b_is_shared ? 0 : m->inner * m->columns);
    if (status == LK_GPU_OK)
        status = gpu_matmul_repeat(&p->y, m->parts, m->rows * m->columns);
    if (status != LK_GPU_OK) {
        free(p);
        return status;
    }
    p->is_split = !p->is_direct && (cublasLtMatmulAlgoCheck(libraries->blas, &p->operation, &p->b, &p->a, &p->y, &p->y,
                                                            &p->algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
                                    result.workspaceSize > LK_GPU_WORKSPACE_BYTES);
    lk__gpu_cache_add(&libraries->products_of_parts, &p->problem, key);
    *out = p;
    return LK_GPU_OK;
}

/* Exchanges pause, because the library may load kernels. */
static lk_gpu_status gpu_matmul_find_product(lk_gpu_stream *stream, const lk_gpu_matmul *m, product **out)
{
    int64_t key[LK_GPU_KEY_WORDS] = {
        m->rows,         m->inner,        m->columns,      m->dtype, m->y_dtype,
        m->a_transposed, m->b_transposed, m->bias != NULL, m->tf32,  lk__gpu_hash_of_engine(m->engine)};
    *out = (product *)lk__gpu_cache_find(&stream->libraries->products, key);
    if (*out)
        return LK_GPU_OK;
    lk__gpu_pause(stream, true);
    lk_gpu_status status = gpu_matmul_make_product(stream->libraries, m, key, out);
    lk__gpu_resume(stream);
    return status;
}

static lk_gpu_status gpu_matmul_find_parts(lk_gpu_stream *stream, const lk_gpu_matmul *m, product **out)
{
    const product *one;
    LK_GPU_TRY(gpu_matmul_find_product(stream, m, out));
    if (m->parts <= 1)
        return LK_GPU_OK;
    one = *out;
    int64_t key[LK_GPU_KEY_WORDS];
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): the product was found */
    memcpy(key, one->problem.key, sizeof key);
    key[LK_GPU_KEY_WORDS - 2] = m->parts;
    key[LK_GPU_KEY_WORDS - 1] = m->b_is_shared;
    *out = (product *)lk__gpu_cache_find(&stream->libraries->products_of_parts, key);
    if (*out)
        return LK_GPU_OK;
    lk__gpu_pause(stream, true);
    lk_gpu_status status = gpu_matmul_make_parts(stream->libraries, m, one, key, out);
    lk__gpu_resume(stream);
    return status;
}

lk_gpu_status lk__gpu_choose_product(lk_gpu_stream *stream, lk_gpu_choice *choice)
{
    const lk_gpu_matmul *m = &choice->matmul;
    product *p;
    snprintf(choice->name, sizeof choice->name, "none");
    if (m->rows == 0 || m->columns == 0 || m->inner == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(lk__gpu_libraries_need(stream));
    LK_GPU_TRY(gpu_matmul_find_product(stream, m, &p));
    snprintf(choice->name, sizeof choice->name, "%s", p->problem.choice.name);
    return LK_GPU_OK;
}

lk_gpu_status lk__gpu_product_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most,
                                      int *n)
{
    lk_gpu_choice first = *choice;
    product p = {.is_direct = false};
    algorithms all = {.n = 0};
    LK_GPU_TRY(lk__gpu_choose_product(stream, &first));
    memcpy(names[0], first.name, sizeof *names);
    *n = 1;
    if (strncmp(first.name, "cublaslt:", strlen("cublaslt:")) != 0)
        return LK_GPU_OK;
    LK_GPU_TRY(describe_product(&p, &choice->matmul));
    LK_GPU_TRY(gpu_matmul_list_algorithms(stream->libraries->blas, &p, &all));
    for (int i = 1; i < all.n && *n < most; i++) {
        LK_GPU_TRY(gpu_matmul_name_algorithm(&all.list[i], names[*n], sizeof *names));
        *n += strcmp(names[*n], names[*n - 1]) != 0;
    }
    return LK_GPU_OK;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static lk_gpu_status gpu_matmul_run_product(lk_gpu_stream *stream, const lk_gpu_matmul *m);

static lk_gpu_status gpu_matmul_run_parts(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    int64_t size = m->dtype == LK_BF16 ? 2 : 4, y_size = m->y_dtype == LK_BF16 ? 2 : 4;
    lk_gpu_matmul one = *m;
    one.parts = 0;
    for (int64_t i = 0; i < m->parts; i++) {
        LK_GPU_TRY(gpu_matmul_run_product(stream, &one));
        one.a = (const char *)one.a + m->rows * m->inner * size;
        one.b = (const char *)one.b + (m->b_is_shared ? 0 : m->inner * m->columns * size);
        one.y = (char *)one.y + m->rows * m->columns * y_size;
    }
    return LK_GPU_OK;
}

static lk_gpu_status gpu_matmul_run_product(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    static const float one = 1, zero = 0;
    product *p;
    LK_GPU_TRY(lk__gpu_libraries_need(stream));
    LK_GPU_TRY(gpu_matmul_find_parts(stream, m, &p));
    if (p->is_direct)
        return lk__gpu_direct_matmul(stream, m);
    if (p->is_split)
        return gpu_matmul_run_parts(stream, m);
    if (m->bias)
        LK_GPU_TRY(product_set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias, sizeof m->bias));
    bool is_first = !p->problem.has_run;
    if (is_first)
        lk__gpu_pause(stream, true);
    cublasStatus_t status =
        cublasLtMatmul(stream->libraries->blas, &p->operation, &one, m->b, &p->b, m->a, &p->a, &zero, m->y, &p->y, m->y,
                       &p->y, &p->algorithm, stream->workspace, LK_GPU_WORKSPACE_BYTES, stream->stream);
    if (is_first)
        lk__gpu_resume(stream);
    p->problem.has_run = true;
    return lk__gpu_check_blas(status, "multiply");
}

/* With inner = 0 the product is 0, and y is the bias. */
static lk_gpu_status gpu_matmul_only_bias(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    int64_t rows = lk_gpu_parts(m->parts) * m->rows;
    lk_gpu_fill zeros = {.y = m->y, .dtype = m->y_dtype, .count = rows * m->columns};
    lk_gpu_binary sum = {.y = {m->y, m->y_dtype, {m->columns, 1}},
                         .a = {m->y, m->y_dtype, {m->columns, 1}},
                         .b = {(void *)(uintptr_t)m->bias, m->y_dtype, {0, 1}},
                         .ndim = 2,
                         .dim = {rows, m->columns},
                         .op = LK_GPU_ADD};
    LK_GPU_TRY(lk__gpu_fill(stream, &zeros));
    return m->bias ? lk__gpu_binary(stream, &sum) : LK_GPU_OK;
}

lk_gpu_status lk__gpu_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    if (m->rows == 0 || m->columns == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(m->inner > 0 ? gpu_matmul_run_product(stream, m) : gpu_matmul_only_bias(stream, m));
    if (!m->relu)
        return LK_GPU_OK;
    /* cuBLASLt's own relu is max(x, 0), which makes NaN 0. */
    lk_gpu_relu relu = {
        .x = m->y, .y = m->y, .dtype = m->y_dtype, .count = lk_gpu_parts(m->parts) * m->rows * m->columns};
    return lk__gpu_relu(stream, &relu);
}
