/* Lowers calls of operators to a StableHLO module, as the text of MLIR.
 *
 *     lk_lowering *lowering = lk__lowering_new();
 *     lk__lower_call(lowering, call); …
 *     lk__lowering_end(lowering, keep, user, &lowered);
 *
 * The module has one function, @main. Storages are SSA values: one that is read before it is written becomes a
 * parameter; one that is written becomes a result if the caller keeps it. Each parameter and result is a whole storage
 * as a flat tensor<N x dtype>. A storage is used in one dtype. Views of it are slices, transpositions and broadcasts of
 * its value, and an output that covers only a part replaces that part.
 *
 * A compiler fuses, contracts and orders the work of a module as a whole, so a call's bits may depend on the other
 * calls in its module. Work whose bits must not depend on the number of devices, such as a shard's, must be a module of
 * its own, and so must sums over shards.
 *
 * Values are numbered in order and no name depends on an address, so equal series of calls give equal texts. */
#pragma once

#include "core/op.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_lowering lk_lowering;

/* NULL: no memory. */
lk_lowering *lk__lowering_new(void);
void lk__lowering_free(lk_lowering *lowering);

/* Returns whether lk__lower_call can lower the call: a function of its operator, dtypes, shapes and attributes. */
bool lk__lowers(const lk_call *call);

/* Adds a call. A view needs none. Errors: LK_ERR_UNSUPPORTED (the operator and its shapes are named). A failed
 * allocation is reported by lk__lowering_end. */
lk_status lk__lower_call(lk_lowering *lowering, const lk_call *call);

/* A module. Result i takes over the memory of parameter j (attribute tf.aliasing_output) if both are one storage. If
 * takes_step, one more parameter follows the storages: the step, a ui64 scalar that replaces the epoch of the random
 * keys of operators with set_step. */
typedef struct lk_lowered {
    char *text; /* ends with a 0, which `size` does not count */
    size_t size;
    int n_parameters, n_results;
    bool takes_step;
    struct lk_storage **parameters, **results; /* not retained */
    lk_dtype *parameter_dtypes, *result_dtypes;
    int64_t *parameter_counts, *result_counts; /* elements */
} lk_lowered;

/* Ends the module, with the written storages for which `keep` returns true as results, in the order of their first
 * use. Only lk__lowering_free may follow. Errors: LK_ERR_MEMORY. */
lk_status lk__lowering_end(lk_lowering *lowering, bool (*keep)(void *user, struct lk_storage *storage), void *user,
                           lk_lowered *lowered);
void lk__lowered_free(lk_lowered *lowered);
