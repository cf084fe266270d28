#include "optim/pack.h"
#include "base/mem.h"
#include "core/scope.h"
#include "core/shape.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"

/* Every tensor starts at a cache line of 64 bytes. */
enum { ALIGNMENT = 16 };

lk_status lk__pack_add(const lk_tensor *tensor, int64_t *elements)
{
    int64_t count = lk_tensor_count(tensor);
    if (count > INT64_MAX - ALIGNMENT || *elements > INT64_MAX - ALIGNMENT - count)
        LK_FAIL(LK_ERR_SHAPE, "pack: the tensors have more than 2^63 - 1 elements together");
    *elements += (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return LK_OK;
}

lk_tensor *lk__pack_view(lk_call_site at, lk_tensor *packed, int64_t begin, lk_shape shape)
{
    int64_t count;
    if (lk__shape_count(shape, &count) != LK_OK)
        return NULL;
    lk_scope_begin();
    lk_tensor *view = lk_reshape_at(at, lk_slice_at(at, packed, 0, begin, begin + count), shape);
    lk_tensor_retain(view);
    lk_scope_end();
    return view;
}

static lk_status pack_check_tensors(lk_tensor *const *tensors, int n, int64_t *elements)
{
    if (n < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "pack: %d tensors; at least 1 is needed", n);
    *elements = 0;
    for (int i = 0; i < n; i++) {
        if (!tensors[i])
            LK_FAIL(LK_ERR_ARGUMENT, "pack: tensor %d is NULL", i);
        if (lk_tensor_dtype(tensors[i]) != LK_F32)
            LK_FAIL(LK_ERR_DTYPE, "pack: tensor %d is %s; it must be f32", i,
                    lk_dtype_name(lk_tensor_dtype(tensors[i])));
        if (lk_tensor_device(tensors[i]) != lk_tensor_device(tensors[0]))
            LK_FAIL(LK_ERR_DEVICE, "pack: tensor %d is on %s and tensor 0 on %s; they must be on one device", i,
                    lk_device_name(lk_tensor_device(tensors[i])), lk_device_name(lk_tensor_device(tensors[0])));
        LK_TRY(lk__pack_add(tensors[i], elements));
    }
    return LK_OK;
}

/* Makes views[i] a part of `packed` with the values of tensors[i]. On failure the caller releases the views made so
 * far. */
static lk_status pack_make_views(lk_call_site at, lk_tensor *packed, lk_tensor *const *tensors, int n,
                                 lk_tensor **views)
{
    int64_t begin = 0;
    for (int i = 0; i < n; i++) {
        views[i] = lk__pack_view(at, packed, begin, tensors[i]->shape);
        if (!views[i])
            return lk_error_status();
        LK_TRY(lk_copy_into_at(at, views[i], tensors[i]));
        LK_TRY(lk__pack_add(tensors[i], &begin));
    }
    return LK_OK;
}

static lk_status pack_tensors(lk_call_site at, lk_tensor **tensors, int n, lk_tensor **views, lk_tensor **packed)
{
    int64_t elements;
    LK_TRY(pack_check_tensors(tensors, n, &elements));
    *packed = lk_full_at(at, lk_tensor_device(tensors[0]), LK_F32, LK_SHAPE(elements), 0);
    return *packed ? pack_make_views(at, *packed, tensors, n, views) : lk_error_status();
}

lk_status lk_pack(lk_tensor **tensors, int n, lk_tensor **packed)
{
    lk_tensor **views = lk__calloc(n > 0 ? (size_t)n : 1, sizeof(lk_tensor *)), *made = NULL;
    if (!views)
        return LK_ERR_MEMORY;
    lk_recorder recorder = lk__recorder_set((lk_recorder){.self = NULL});
    lk_scope_begin();
    lk_status status = pack_tensors(LK_HERE, tensors, n, views, &made);
    lk_tensor_retain(status == LK_OK ? made : NULL);
    lk_scope_end();
    lk__recorder_set(recorder);
    if (status == LK_OK) {
        *packed = lk__scope_adopt(made);
        status = *packed ? LK_OK : LK_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        lk_tensor_release(status == LK_OK ? tensors[i] : views[i]);
        if (status == LK_OK)
            tensors[i] = views[i];
    }
    lk__free(views);
    return status;
}
