/* Fails one allocation after another:
 *
 *     for (failing f = fail_every(1); fail_next(&f);) {
 *         lk_status status = what_is_tested();
 *         stop_failing(&f);
 *         // f.reached: the call made the allocation that failed
 *     }
 *
 * The first round fails allocation 0, the next one allocation `stride`, and so on; the loop ends after the first round
 * that makes too few allocations for one to fail. Calls that must not fail go before fail_next; the loop is
 * then do { ... } while (f.reached). */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "lockstep/status.h"

typedef struct failing {
    int64_t n, stride; /* allocation n fails */
    bool reached;      /* allocation n was made; set by stop_failing */
} failing;

static inline failing fail_every(int64_t stride)
{
    return (failing){.n = -stride, .stride = stride, .reached = true};
}

static inline bool fail_next(failing *f)
{
    if (!f->reached)
        return false;
    f->n += f->stride;
    lk_error_clear();
    lk__mem_fail_at(f->n);
    return true;
}

static inline void stop_failing(failing *f)
{
    f->reached = lk__mem_allocations() > f->n;
    lk__mem_fail_at(-1);
}

/* Stops failing. `status` is what the tested call returned: LK_ERR_MEMORY if the allocation failed, otherwise LK_OK.
 * Clears the error. */
static inline void stop_failing_with(failing *f, lk_status status)
{
    stop_failing(f);
    assert_int_equal(status, f->reached ? LK_ERR_MEMORY : LK_OK);
    lk_error_clear();
}
