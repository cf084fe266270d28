/* batch_norm, relu and dropout become batch_norm_drop, and their gradients batch_norm_drop_grad. Only where there are
 * gradients: without, nothing is dropped out. */
#include "ops/ops.h"
#include "program/rewrite.h"

#include <string.h>

/* The numbers of the calls that match. */
typedef struct pattern {
    int norm, relu, drop;
    int drop_grad, relu_grad, norm_grad;
} pattern;

static bool fuse_drop_is_like(const lk_rewrite *r, int i, int drop)
{
    const lk_call *a = lk__rewrite_call(r, drop);
    return lk__rewrite_is(r, i, LK_OP_DROPOUT) && lk__rewrite_call(r, i)->in[1] == a->in[1] &&
           memcmp(a->attrs.bytes, lk__rewrite_call(r, i)->attrs.bytes, sizeof(lk_dropout_attrs)) == 0;
}

static bool fuse_drop_find(const lk_rewrite *r, int i, pattern *p)
{
    if (!lk__rewrite_is(r, i, LK_OP_BATCH_NORM))
        return false;
    p->norm = i;
    p->relu = lk__rewrite_only_reader(r, i);
    if (!lk__rewrite_is(r, p->relu, LK_OP_RELU))
        return false;
    const lk_tensor *y = lk__rewrite_result(r, p->relu);
    int readers[2];
    if (lk__rewrite_readers(r, y, readers, 2) != 2 || !lk__rewrite_is_between(r, y, readers, 2))
        return false;
    p->drop = readers[0];
    p->relu_grad = readers[1];
    if (!lk__rewrite_is(r, p->drop, LK_OP_DROPOUT) || !lk__rewrite_is(r, p->relu_grad, LK_OP_RELU_GRAD))
        return false;
    const lk_call *relu_grad = lk__rewrite_call(r, p->relu_grad), *norm = lk__rewrite_call(r, i);
    p->drop_grad = lk__rewrite_writer(r, relu_grad->in[0]);
    p->norm_grad = lk__rewrite_only_reader(r, p->relu_grad);
    if (relu_grad->in[1] != y || !fuse_drop_is_like(r, p->drop_grad, p->drop) ||
        lk__rewrite_only_reader(r, p->drop_grad) != p->relu_grad ||
        !lk__rewrite_is(r, p->norm_grad, LK_OP_BATCH_NORM_GRAD))
        return false;
    const lk_call *norm_grad = lk__rewrite_call(r, p->norm_grad);
    return norm_grad->in[0] == relu_grad->out[0] && norm_grad->in[1] == norm->in[0] &&
           norm_grad->in[3] == norm->out[1] && norm_grad->n_out == 3;
}

lk_status lk__fuse_batch_norm_drop(lk_rewrite *r, int i)
{
    pattern p;
    if (!fuse_drop_find(r, i, &p))
        return LK_OK;
    const lk_call *norm = lk__rewrite_call(r, p.norm), *drop = lk__rewrite_call(r, p.drop);
    const lk_call *norm_grad = lk__rewrite_call(r, p.norm_grad);
    const lk_batch_norm_drop_attrs attrs = {*LK_ATTRS(norm, lk_batch_norm_attrs), *LK_ATTRS(drop, lk_dropout_attrs)};
    lk_call forward = {.op = &lk__op_batch_norm_drop,
                       .place = norm->place,
                       .free_layout = drop->free_layout,
                       .n_in = 4,
                       .n_out = 3,
                       .in = {norm->in[0], norm->in[1], norm->in[2], drop->in[1]},
                       .out = {drop->out[0], norm->out[1]}};
    lk_call backward = {.op = &lk__op_batch_norm_drop_grad,
                        .place = norm_grad->place,
                        .free_layout = norm_grad->free_layout,
                        .n_in = 7,
                        .n_out = 3,
                        .in = {lk__rewrite_call(r, p.drop_grad)->in[0], NULL, norm->in[0], norm->in[1], norm->out[1],
                               norm->in[2], drop->in[1]},
                        .out = {norm_grad->out[0], norm_grad->out[1], norm_grad->out[2]}};
    lk__call_set_attrs(&forward, &attrs, sizeof attrs);
    lk__call_set_attrs(&backward, &attrs, sizeof attrs);
    const int gone[] = {p.norm, p.relu};
    if (!lk__rewrite_fits(r, &forward) || !lk__rewrite_fits(r, &backward) ||
        !lk__rewrite_may_stand(r, p.drop, &forward, gone, 2) ||
        !lk__rewrite_may_stand(r, p.relu_grad, &backward, (int[]){p.drop_grad, p.norm_grad, p.norm}, 3))
        return LK_OK;
    lk_tensor *kept;
    LK_TRY(lk__rewrite_output(&forward, 2, &kept));
    forward.out[2] = backward.in[1] = kept;
    lk__rewrite_replace(r, p.relu_grad, &backward, (int[]){p.drop_grad, p.norm_grad}, 2);
    lk__rewrite_replace(r, p.drop, &forward, gone, 2);
    lk_tensor_release(kept);
    return LK_OK;
}
