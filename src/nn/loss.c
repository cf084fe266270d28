#include "base/status.h"
#include "ops/support.h"
#include "lockstep/nn.h"

lk_tensor *lk_average_loss_at(lk_call_site at, lk_tensor *per_example, int64_t global_batch)
{
    if (!per_example) {
        lk__fail(LK_ERR_ARGUMENT, "average_loss: per_example is NULL");
        return NULL;
    }
    if (global_batch < 1) {
        lk__fail(LK_ERR_ARGUMENT, "average_loss: global_batch is %lld; it must be at least 1", (long long)global_batch);
        return NULL;
    }
    if (per_example->shape.ndim != 1) {
        lk__fail(LK_ERR_SHAPE, "average_loss: per_example has shape %s; it must be [N]",
                 lk__text(per_example->shape).string);
        return NULL;
    }
    lk_scope_begin();
    lk_tensor *count =
        lk_full_at(at, lk_tensor_device(per_example), per_example->dtype, LK_SCALAR, (double)global_batch);
    return lk__scope_return(lk_div_at(at, lk_sum_at(at, per_example, NULL), count));
}
