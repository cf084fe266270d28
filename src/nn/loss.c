#include "base/status.h"
#include "core/tensor.h"
#include "lockstep/nn.h"

lk_tensor *lk_average_loss_at(lk_place at, lk_tensor *per_example, int64_t global_batch)
{
    char text[128];
    if (!per_example) {
        lk__fail(LK_ERR_ARGUMENT, "average_loss: per_example is NULL");
        return NULL;
    }
    lk__shape_text(per_example->shape, text, sizeof text);
    if (global_batch < 1)
        lk__fail(LK_ERR_ARGUMENT, "average_loss: global_batch is %lld; it must be at least 1", (long long)global_batch);
    else if (per_example->shape.ndim != 1)
        lk__fail(LK_ERR_SHAPE, "average_loss: per_example has shape %s; it must be [N]", text);
    if (global_batch < 1 || per_example->shape.ndim != 1)
        return NULL;
    lk_scope_begin();
    lk_tensor *count =
        lk_full_at(at, lk_tensor_device(per_example), per_example->dtype, LK_SCALAR, (double)global_batch);
    lk_tensor *loss = lk_tensor_retain(lk_div_at(at, lk_sum_at(at, per_example, NULL), count));
    lk_scope_end();
    return loss ? lk__scope_adopt(loss) : NULL;
}
