#include "ops/ops.h"

#include <stddef.h>

static const lk_op *const table[LK_OP_COUNT] = {
#define LK_OP(identifier, name) [LK_OP_##identifier] = &lk__op_##name,
#include "ops/ops.def"
#undef LK_OP
};

const lk_op *lk__op_at(int id)
{
    return id >= 0 && id < LK_OP_COUNT ? table[id] : NULL;
}

const char *lk_op_name(int op)
{
    const lk_op *found = lk__op_at(op);
    return found ? found->name : NULL;
}

bool lk_op_is_view(int op)
{
    const lk_op *found = lk__op_at(op);
    return found && (found->flags & LK_OP_VIEW);
}

bool lk_op_is_differentiable(int op)
{
    const lk_op *found = lk__op_at(op);
    return found && found->gradient;
}
