/* Scopes: a stack of tensors for each thread, and where in it each open scope began. */
#include "core/tensor.h"

#include "base/mem.h"
#include "base/thread_end.h"

/* Opening a scope cannot fail, so its begin needs a place without an allocation. Scopes nested deeper share the last.
 */
enum { MAX_DEPTH = 64 };

typedef struct scope_stack {
    lk_tensor **tensors;
    int64_t count, capacity;
    bool is_kept; /* between scopes; given back when the thread ends */
    int64_t begins[MAX_DEPTH];
    int64_t depth;
} scope_stack;

static _Thread_local scope_stack stack;

static void let_go(void)
{
    lk__free(stack.tensors);
    stack = (scope_stack){0};
}

static lk_status grow(void)
{
    if (!stack.is_kept && lk__mem_may_keep())
        stack.is_kept = lk__at_thread_end(let_go);
    int64_t capacity = stack.capacity ? 2 * stack.capacity : 64;
    lk_tensor **tensors = lk__realloc(stack.tensors, (size_t)capacity, sizeof *tensors);
    if (!tensors)
        return LK_ERR_MEMORY;
    stack.tensors = tensors;
    stack.capacity = capacity;
    return LK_OK;
}

void lk_scope_begin(void)
{
    if (stack.depth < MAX_DEPTH)
        stack.begins[stack.depth] = stack.count;
    stack.depth++;
}

void lk_scope_end(void)
{
    if (stack.depth == 0)
        return;
    if (--stack.depth >= MAX_DEPTH)
        return;
    while (stack.count > stack.begins[stack.depth])
        lk_tensor_release(stack.tensors[--stack.count]);
    if (stack.depth == 0 && !stack.is_kept) /* a thread that ends outside its scopes leaves nothing behind */
        let_go();
}

lk_tensor *lk__scope_adopt(lk_tensor *tensor)
{
    if (!tensor || stack.depth == 0)
        return tensor;
    if (stack.count == stack.capacity && grow() != LK_OK) {
        lk_tensor_release(tensor);
        return NULL;
    }
    stack.tensors[stack.count++] = tensor;
    return tensor;
}

lk_status lk__scope_adopt_all(lk_tensor **tensors, int64_t n, lk_status status)
{
    /* Room for all of them first: after that adopting cannot fail half way. */
    while (status == LK_OK && stack.depth > 0 && stack.count + n > stack.capacity)
        status = grow();
    for (int64_t i = 0; i < n; i++) {
        if (status == LK_OK) {
            lk__scope_adopt(tensors[i]);
        } else {
            lk_tensor_release(tensors[i]);
            tensors[i] = NULL;
        }
    }
    return status;
}
