#include "lockstep/optim.h"
#include "base/status.h"
#include "lockstep/ops.h"

lk_status lk_sgd_at(lk_call_site at, lk_tensor *const *parameters, lk_tensor *const *gradients, int n, double rate)
{
    for (int i = 0; i < n; i++)
        if (gradients[i])
            LK_TRY(lk_sgd_update_at(at, parameters[i], gradients[i], rate));
    return LK_OK;
}
