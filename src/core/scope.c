/* Scopes: a stack of tensors for each thread, and where in it each open scope began. */
#include "core/tensor.h"

#include "base/mem.h"

typedef struct scope_stack {
    lk_tensor **tensors;
    int64_t count, capacity;
    int64_t *begins;
    int64_t depth, begins_capacity;
    int64_t failed; /* scopes that could not be opened for want of memory, and so are not in begins */
} scope_stack;

static _Thread_local scope_stack stack;

static lk_status grow(void **items, int64_t *capacity, size_t size)
{
    int64_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = lk__realloc(*items, (size_t)wanted, size);
    if (!grown)
        return LK_ERR_MEMORY;
    *items = grown;
    *capacity = wanted;
    return LK_OK;
}

void lk_scope_begin(void)
{
    if (stack.depth == stack.begins_capacity &&
        grow((void **)&stack.begins, &stack.begins_capacity, sizeof *stack.begins) != LK_OK) {
        /* What is returned until the matching end goes to the scope around this one, or to the caller. */
        stack.failed++;
        return;
    }
    stack.begins[stack.depth++] = stack.count;
}

void lk_scope_end(void)
{
    if (stack.failed > 0) {
        stack.failed--;
        return;
    }
    if (stack.depth == 0)
        return;
    int64_t begin = stack.begins[--stack.depth];
    while (stack.count > begin)
        lk_tensor_release(stack.tensors[--stack.count]);
    if (stack.depth == 0) { /* a thread that ends outside its scopes leaves nothing behind */
        lk__free(stack.tensors);
        lk__free(stack.begins);
        stack = (scope_stack){0};
    }
}

lk_tensor *lk__scope_adopt(lk_tensor *tensor)
{
    if (!tensor || stack.depth == 0)
        return tensor;
    if (stack.count == stack.capacity && grow((void **)&stack.tensors, &stack.capacity, sizeof *stack.tensors) != LK_OK) {
        lk_tensor_release(tensor);
        return NULL;
    }
    stack.tensors[stack.count++] = tensor;
    return tensor;
}
