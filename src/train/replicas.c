/* A model's variables on every device, packed for the optimiser, and their updates. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "optim/optimizer.h"

struct lk_replicas {
    lk_strategy *strategy;
    const lk_model *model;
    int n_devices, n_parameters, n_variables, n_statistics;
    lk_tensor **variables;     /* [replica * n_variables + i] */
    lk_tensor **flats;         /* [replica]: what lk_pack made of the parameters */
    lk_optimizer **optimizers; /* [replica]; NULL: none */
};

static lk_status place_variables(lk_replicas *replicas, uint64_t seed)
{
    lk_tensor **initial = lk__calloc((size_t)replicas->n_variables, sizeof *initial);
    if (!initial)
        return LK_ERR_MEMORY;
    lk_scope_begin();
    lk_status status = lk_model_init(replicas->model, lk_strategy_device(replicas->strategy, 0), seed, initial);
    if (status == LK_OK)
        status = lk_strategy_place(replicas->strategy, initial, replicas->n_variables, replicas->variables);
    lk_scope_end();
    lk__free(initial);
    return status;
}

/* A reference of the replicas' own to the flat tensor, whatever scope is open. */
static lk_status pack(lk_replicas *replicas, int r)
{
    lk_tensor *flat = NULL;
    lk_scope_begin();
    lk_status status = lk_pack(replicas->variables + (int64_t)r * replicas->n_variables, replicas->n_parameters, &flat);
    replicas->flats[r] = lk_tensor_retain(flat);
    lk_scope_end();
    return status;
}

static lk_status make_optimizers(lk_replicas *replicas, const lk_optimizer_opts *opts)
{
    replicas->optimizers = lk__calloc((size_t)replicas->n_devices, sizeof(lk_optimizer *));
    if (!replicas->optimizers)
        return LK_ERR_MEMORY;
    for (int r = 0; r < replicas->n_devices; r++) {
        lk_tensor **parameters = replicas->variables + (int64_t)r * replicas->n_variables;
        LK_TRY(pack(replicas, r));
        replicas->optimizers[r] = lk_optimizer_new(opts, replicas->flats[r], parameters, replicas->n_parameters);
        if (!replicas->optimizers[r])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status build(lk_replicas *replicas, const lk_optimizer_opts *opts, uint64_t seed)
{
    size_t k = (size_t)replicas->n_devices;
    replicas->variables = lk__calloc(k * (size_t)replicas->n_variables, sizeof(lk_tensor *));
    replicas->flats = lk__calloc(k, sizeof(lk_tensor *));
    if (!replicas->variables || !replicas->flats)
        return LK_ERR_MEMORY;
    LK_TRY(place_variables(replicas, seed));
    return opts ? make_optimizers(replicas, opts) : LK_OK;
}

lk_replicas *lk_replicas_new(lk_strategy *strategy, const lk_model *model, const lk_optimizer_opts *opts, uint64_t seed)
{
    lk_replicas *replicas = lk__calloc(1, sizeof *replicas);
    if (!replicas)
        return NULL;
    replicas->strategy = strategy;
    replicas->model = model;
    replicas->n_devices = lk_strategy_num_replicas(strategy);
    replicas->n_parameters = lk_model_parameter_count(model);
    replicas->n_variables = lk_model_variable_count(model);
    replicas->n_statistics = lk_model_statistics_count(model);
    if (build(replicas, opts, seed) == LK_OK)
        return replicas;
    lk_replicas_release(replicas);
    return NULL;
}

void lk_replicas_release(lk_replicas *replicas)
{
    if (!replicas)
        return;
    for (int r = 0; replicas->optimizers && r < replicas->n_devices; r++)
        lk_optimizer_release(replicas->optimizers[r]);
    for (int r = 0; replicas->flats && r < replicas->n_devices; r++)
        lk_tensor_release(replicas->flats[r]);
    for (int64_t i = 0; replicas->variables && i < (int64_t)replicas->n_devices * replicas->n_variables; i++)
        lk_tensor_release(replicas->variables[i]);
    lk__free(replicas->optimizers);
    lk__free(replicas->flats);
    lk__free(replicas->variables);
    lk__free(replicas);
}

lk_tensor *const *lk_replicas_variables(const lk_replicas *replicas, int replica)
{
    if (replica < 0 || replica >= replicas->n_devices)
        return NULL;
    return replicas->variables + (int64_t)replica * replicas->n_variables;
}

const lk_model *lk__replicas_model(const lk_replicas *replicas)
{
    return replicas->model;
}

lk_optimizer *lk_replicas_optimizer(const lk_replicas *replicas, int replica)
{
    return replicas->optimizers && replica >= 0 && replica < replicas->n_devices ? replicas->optimizers[replica] : NULL;
}

lk_status lk__replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int loss, int64_t samples,
                             double rate)
{
    int n = replicas->n_parameters;
    if (!replicas->optimizers)
        LK_FAIL(LK_ERR_STATE, "replicas: there is no optimizer to apply gradients with");
    for (int r = 0; r < replicas->n_devices; r++) {
        lk_tensor *const *values = sums + (int64_t)r * stride;
        lk_optimizer *optimizer = replicas->optimizers[r];
        LK_TRY(lk__optimizer_step(LK_HERE, optimizer, values, loss < 0 ? NULL : values[loss], rate));
        if (replicas->n_statistics > 0)
            LK_TRY(lk_model_update_statistics(replicas->model, lk_replicas_variables(replicas, r), values + n, samples,
                                              0, lk_optimizer_skipped(optimizer)));
    }
    return LK_OK;
}

lk_status lk__replicas_record(lk_replicas *replicas, int replica, lk_tensor *const *sums, int loss, int64_t samples,
                              lk_tensor *rates)
{
    lk_optimizer *optimizer = replicas->optimizers[replica];
    LK_TRY(lk__optimizer_record(LK_HERE, optimizer, sums, sums[loss], rates));
    if (replicas->n_statistics == 0)
        return LK_OK;
    return lk_model_update_statistics(replicas->model, lk_replicas_variables(replicas, replica),
                                      sums + replicas->n_parameters, samples, 0, lk_optimizer_skipped(optimizer));
}

lk_status lk__replicas_set_statistics(lk_replicas *replicas, lk_tensor *const *sums, int64_t samples, double momentum)
{
    for (int r = 0; r < replicas->n_devices; r++)
        LK_TRY(lk_model_update_statistics(replicas->model, lk_replicas_variables(replicas, r),
                                          sums + (int64_t)r * replicas->n_statistics, samples, momentum, NULL));
    return LK_OK;
}

lk_status lk_replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int64_t samples, double rate)
{
    return lk__replicas_apply(replicas, sums, stride, -1, samples, rate);
}
