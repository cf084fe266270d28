/* Each thread has a stack of tensors and, for each open scope, the position in the stack where it began. */
#include "core/scope.h"
#include "base/mem.h"
#include "base/thread.h"

/* Opening a scope cannot fail, so the positions are not allocated. Scopes nested deeper than this share the last. */
enum { MAX_DEPTH = 64 };

typedef struct scope_stack {
    lk_tensor **tensors;
    int64_t count, capacity;
    bool is_kept; /* allocated between scopes too, until the thread ends */
    int64_t begins[MAX_DEPTH];
    int64_t depth;
} scope_stack;

static _Thread_local scope_stack stack;

static void scope_free_stack(void)
{
    lk__free(stack.tensors);
    stack = (scope_stack){0};
}

static lk_status scope_grow(int64_t n)
{
    if (stack.count + n <= stack.capacity)
        return LK_OK;
    if (!stack.is_kept && lk__mem_may_keep())
        stack.is_kept = lk__at_thread_end(scope_free_stack);
    return LK_GROW(stack.tensors, &stack.capacity, stack.count + n);
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
        scope_free_stack();
}

lk_tensor *lk__scope_adopt(lk_tensor *tensor)
{
    if (!tensor || stack.depth == 0)
        return tensor;
    if (scope_grow(1) != LK_OK) {
        lk_tensor_release(tensor);
        return NULL;
    }
    stack.tensors[stack.count++] = tensor;
    return tensor;
}

lk_status lk__scope_adopt_all(lk_tensor **tensors, int64_t n, lk_status status)
{
    /* Reserve space for all of them first: after that adopting cannot fail half way. */
    if (status == LK_OK && stack.depth > 0)
        status = scope_grow(n);
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
