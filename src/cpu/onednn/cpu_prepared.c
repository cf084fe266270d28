#include "cpu/onednn/cpu_prepared.h"

#include "base/log.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/kept.h"
#include "core/tensor.h"
#include "cpu/onednn/cpu_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* --- keys --------------------------------------------------------------------------------------------------------- */

void lk__key_start(lk_key *key, int op)
{
    key->n = 1;
    key->words[0] = op;
}

void lk__key_add(lk_key *key, const int64_t *words, int n)
{
    memcpy(&key->words[key->n], words, (size_t)n * sizeof *words);
    key->n += n;
}

void lk__key_tensor(lk_key *key, const lk_tensor *x)
{
    if (!x) {
        key->words[key->n++] = -1;
        return;
    }
    key->words[key->n++] = x->dtype;
    key->words[key->n++] = x->shape.ndim;
    lk__key_add(key, x->shape.dim, x->shape.ndim);
    key->words[key->n++] = (int64_t)(uintptr_t)x->storage->layout;
    if (!x->storage->layout)
        lk__key_add(key, x->strides, x->shape.ndim);
}

void lk__key_call(lk_key *key, const lk_call *call)
{
    lk__key_start(key, call->op->id);
    key->words[key->n++] = call->free_layout;
    for (int i = 0; i < call->n_in; i++)
        lk__key_tensor(key, call->in[i]);
    for (int i = 0; i < call->n_out; i++) {
        key->words[key->n++] = call->out[i]->shape.ndim;
        key->words[key->n++] = call->out[i]->dtype;
        lk__key_add(key, call->out[i]->strides, call->out[i]->shape.ndim);
    }
}

void lk__key_conv(lk_key *key, const lk_conv2d_opts *opts)
{
    lk__key_add(key, opts->stride, 2);
    lk__key_add(key, opts->padding, 2);
    lk__key_add(key, opts->dilation, 2);
}

static uint64_t key_hash(const lk_key *key)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < key->n; i++) {
        hash = (hash ^ (uint64_t)key->words[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

static bool cpu_prepared_has_key(const lk_prepared *prepared, uint64_t hash, const lk_key *key)
{
    return prepared->hash == hash && prepared->key.n == key->n &&
           memcmp(prepared->key.words, key->words, (size_t)key->n * sizeof *key->words) == 0;
}

/* --- the cache ---------------------------------------------------------------------------------------------------- */

static void free_prepared(lk_prepared *prepared)
{
    for (int i = 0; i < prepared->n_operands; i++) {
        lk_operand *operand = &prepared->operands[i];
        if (operand->memory)
            dnnl_memory_destroy(operand->memory);
        if (operand->outside)
            dnnl_memory_destroy(operand->outside);
        if (operand->reorder)
            dnnl_primitive_destroy(operand->reorder);
    }
    if (prepared->scratchpad)
        dnnl_memory_destroy(prepared->scratchpad);
    if (prepared->primitive)
        dnnl_primitive_destroy(prepared->primitive);
    lk__free(prepared);
}

void lk__prepared_free(lk_prepared *prepared)
{
    while (prepared) {
        lk_prepared *next = prepared->next;
        free_prepared(prepared);
        prepared = next;
    }
}

lk_status lk__prepared_get(lk_cpu *cpu, const lk_key *key, const lk_call *call, lk_prepare_fn prepare,
                           lk_prepared **out)
{
    uint64_t hash = key_hash(key);
    lk_prepared **bucket = &cpu->buckets[hash % LK_CPU_BUCKETS];
    for (lk_prepared *prepared = *bucket; prepared; prepared = prepared->next) {
        if (cpu_prepared_has_key(prepared, hash, key)) {
            *out = prepared;
            return LK_OK;
        }
    }
    lk_prepared *prepared = lk__calloc(1, sizeof *prepared);
    if (!prepared)
        return LK_ERR_MEMORY;
    prepared->hash = hash;
    prepared->key = *key;
    prepared->op = call->op->name;
    lk_status status = prepare(cpu, call, prepared);
    if (status != LK_OK) {
        free_prepared(prepared);
        return status;
    }
    pthread_mutex_lock(&cpu->lock);
    prepared->next = *bucket;
    *bucket = prepared;
    cpu->n_prepared++;
    pthread_mutex_unlock(&cpu->lock);
    *out = prepared;
    return LK_OK;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

/* Reserves bytes in the scratch memory, from the start of a cache line on. Returns their offset. */
static size_t cpu_prepared_reserve_scratch(lk_prepared *prepared, size_t bytes)
{
    size_t offset = prepared->scratch_bytes;
    prepared->scratch_bytes += lk__aligned_bytes(bytes);
    return offset;
}

/* oneDNN's reference code gives right results slowly, so this warns and does not fail. */
static void cpu_prepared_warn_if_slow(const lk_prepared *prepared)
{
    if (strncmp(prepared->implementation, "ref", 3) == 0)
        lk__log(LK_LOG_WARNING, "%s (%s): oneDNN has only its slow reference implementation '%s' for this",
                prepared->op, prepared->problem, prepared->implementation);
}

/* oneDNN crashes if it is refused memory for generated code, or for anything that C++ allocates. It generates code when
 * a primitive is made, and more when the first product runs. So memory must be there before both; 32 MiB is more than
 * either takes. */
static lk_status cpu_prepared_check_memory(void)
{
    const size_t bytes = 32 << 20;
    void *there = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (there == MAP_FAILED)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: %zu bytes for oneDNN's code were refused", bytes);
    munmap(there, bytes);
    return LK_OK;
}

lk_status lk__prepare_primitive(lk_cpu *cpu, lk_prepared *prepared, dnnl_primitive_desc_t pd)
{
    lk_md scratchpad = {0};
    snprintf(prepared->implementation, sizeof prepared->implementation, "%s", lk__pd_implementation(pd));
    cpu_prepared_warn_if_slow(prepared);
    LK_TRY(cpu_prepared_check_memory());
    LK_DNNL(dnnl_primitive_create(&prepared->primitive, pd), "make a primitive");
    LK_TRY(lk__md_query(&scratchpad, pd, dnnl_query_scratchpad_md));
    lk_status status = LK_OK;
    if (lk__md_bytes(&scratchpad) > 0) {
        prepared->scratchpad_offset = cpu_prepared_reserve_scratch(prepared, lk__md_bytes(&scratchpad));
        status = lk__dnnl_memory(&prepared->scratchpad, &scratchpad, cpu->engine);
    }
    lk__md_free(&scratchpad);
    return status;
}

/* Adds the reorder between `outside`, the tensor's layout, and `wanted`. */
static lk_status cpu_prepared_add_reorder(lk_cpu *cpu, lk_prepared *prepared, lk_operand *operand, const lk_md *outside,
                                          const lk_md *wanted)
{
    dnnl_primitive_desc_t pd;
    bool in = operand->direction == LK_IN;
    operand->bytes = lk__md_bytes(wanted);
    operand->offset = cpu_prepared_reserve_scratch(prepared, operand->bytes);
    LK_TRY(cpu_prepared_check_memory());
    LK_TRY(lk__dnnl_memory(&operand->outside, outside, cpu->engine));
    LK_TRY(lk__pd_reorder(&pd, cpu->engine, in ? outside : wanted, in ? wanted : outside));
    dnnl_status_t status = dnnl_primitive_create(&operand->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    return lk__dnnl_status(status, "make a reorder");
}

static lk_status cpu_prepared_add_reorder_if_needed(lk_cpu *cpu, lk_prepared *prepared, lk_operand *operand,
                                                    const lk_tensor *x, const lk_md *wanted)
{
    lk_md outside = {0};
    LK_TRY(operand->direction == LK_IN ? lk__md_of_tensor(&outside, x) : lk__md_of_plain(&outside, x));
    lk_status status = LK_OK;
    if (operand->direction == LK_IN && lk__must_gather(x)) {
        operand->gather = true;
        operand->gather_offset = cpu_prepared_reserve_scratch(prepared, lk__md_bytes(&outside));
    }
    if (!lk__md_equal(&outside, wanted))
        status = cpu_prepared_add_reorder(cpu, prepared, operand, &outside, wanted);
    lk__md_free(&outside);
    return status;
}

lk_status lk__prepare_operand(lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, const lk_md *wanted, bool free_layout)
{
    lk_operand *operand = &prepared->operands[prepared->n_operands++];
    operand->argument = argument;
    operand->direction = direction;
    LK_TRY(lk__dnnl_memory(&operand->memory, wanted, cpu->engine));
    if (direction == LK_OUT && free_layout)
        return lk__layout_unless_plain(wanted, x->shape, &operand->layout);
    return cpu_prepared_add_reorder_if_needed(cpu, prepared, operand, x, wanted);
}

lk_status lk__prepare_queried(lk_cpu *cpu, lk_prepared *prepared, int argument, lk_direction direction,
                              const lk_tensor *x, dnnl_primitive_desc_t pd, dnnl_query_t query, bool free_layout)
{
    lk_md wanted;
    LK_TRY(lk__md_query(&wanted, pd, query));
    lk_status status = lk__prepare_operand(cpu, prepared, argument, direction, x, &wanted, free_layout);
    lk__md_free(&wanted);
    return status;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

lk_status lk__dnnl_execute(lk_cpu *cpu, dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *arguments,
                           const char *what)
{
    LK_DNNL(dnnl_primitive_execute(primitive, cpu->stream, n, arguments), what);
    LK_DNNL(dnnl_stream_wait(cpu->stream), what);
    return LK_OK;
}

static lk_status set_memory(dnnl_memory_t memory, void *data)
{
    return lk__dnnl_status(dnnl_memory_set_data_handle(memory, data), "set a memory object's data");
}

static lk_status cpu_prepared_run_reorder(lk_cpu *cpu, const lk_operand *operand)
{
    bool in = operand->direction == LK_IN;
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, in ? operand->outside : operand->memory},
                                   {DNNL_ARG_TO, in ? operand->memory : operand->outside}};
    return lk__dnnl_execute(cpu, operand->reorder, 2, arguments, "reorder");
}

static lk_status cpu_prepared_allocate_output(const lk_operand *operand, lk_tensor *x)
{
    if (operand->layout)
        return lk__storage_allocate(x->storage, operand->layout->bytes, operand->layout);
    return lk__output_plain(x);
}

/* Points the operand to the kept copy of the weights, and reorders them into it if it is new. */
static lk_status cpu_prepared_bind_kept(lk_cpu *cpu, const lk_operand *operand, lk_tensor *x, lk_kept *kept)
{
    LK_TRY(set_memory(operand->memory, kept->block->data));
    LK_TRY(set_memory(operand->outside, lk__cpu_data(x)));
    if (!kept->made)
        LK_TRY(cpu_prepared_run_reorder(cpu, operand));
    kept->made = true;
    return LK_OK;
}

static lk_status cpu_prepared_bind_operand(lk_cpu *cpu, const lk_operand *operand, lk_tensor *x)
{
    if (operand->direction == LK_OUT)
        LK_TRY(cpu_prepared_allocate_output(operand, x));
    void *data = operand->layout ? x->storage->data : lk__cpu_data(x);
    if (operand->gather) {
        data = (char *)cpu->scratch + operand->gather_offset;
        lk__gather(x, data);
    }
    if (!operand->reorder)
        return set_memory(operand->memory, data);
    LK_TRY(set_memory(operand->memory, (char *)cpu->scratch + operand->offset));
    LK_TRY(set_memory(operand->outside, data));
    return operand->direction == LK_IN ? cpu_prepared_run_reorder(cpu, operand) : LK_OK;
}

enum { WEIGHTS = 1 };

/* kept: memory for the operand WEIGHTS; NULL: not kept. */
static lk_status run_prepared(lk_cpu *cpu, lk_prepared *prepared, lk_tensor *const *tensors, lk_kept *kept)
{
    dnnl_exec_arg_t arguments[LK_MAX_OPERANDS + 1];
    int n = 0;
    LK_TRY(lk__cpu_scratch(cpu, prepared->scratch_bytes));
    for (int i = 0; i < prepared->n_operands; i++) {
        const lk_operand *operand = &prepared->operands[i];
        bool is_kept = kept && i == WEIGHTS;
        LK_TRY(is_kept ? cpu_prepared_bind_kept(cpu, operand, tensors[i], kept)
                       : cpu_prepared_bind_operand(cpu, operand, tensors[i]));
        arguments[n++] = (dnnl_exec_arg_t){prepared->operands[i].argument, prepared->operands[i].memory};
    }
    if (prepared->scratchpad) {
        LK_TRY(set_memory(prepared->scratchpad, (char *)cpu->scratch + prepared->scratchpad_offset));
        arguments[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, prepared->scratchpad};
    }
    if (!prepared->has_run)
        LK_TRY(cpu_prepared_check_memory());
    prepared->has_run = true;
    LK_TRY(lk__dnnl_execute(cpu, prepared->primitive, n, arguments, prepared->op));
    for (int i = 0; i < prepared->n_operands; i++)
        if (prepared->operands[i].direction == LK_OUT && prepared->operands[i].reorder)
            LK_TRY(cpu_prepared_run_reorder(cpu, &prepared->operands[i]));
    return LK_OK;
}

lk_status lk__prepared_run(lk_cpu *cpu, lk_prepared *prepared, lk_tensor *const *tensors)
{
    return run_prepared(cpu, prepared, tensors, NULL);
}

lk_status lk__prepared_run_weights(const lk_call *call, lk_prepared *prepared, lk_tensor *const *tensors)
{
    const lk_operand *weights = &prepared->operands[WEIGHTS];
    lk_kept *kept = NULL;
    if (weights->reorder && !weights->gather)
        LK_TRY(lk__kept_get(call, WEIGHTS, weights->bytes, LK_KEPT_MOST, &kept));
    return run_prepared(call->device->state, prepared, tensors, kept);
}

/* --- empty tensors ------------------------------------------------------------------------------------------------ */

bool lk__cpu_is_empty(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && lk_tensor_count(call->in[i]) == 0)
            return true;
    return lk_tensor_count(call->out[0]) == 0;
}

lk_status lk__cpu_zero_outputs(lk_call *call)
{
    for (int i = 0; i < call->n_out; i++) {
        lk_tensor *out = call->out[i];
        LK_TRY(lk__output_plain(out));
        memset(lk__data(out), 0, (size_t)lk_tensor_count(out) * lk_dtype_size(out->dtype));
    }
    return LK_OK;
}
