/* Arithmetic on the caller's thread whose bits must not depend on the caller's rounding mode, or on whether it flushes
 * denormals. Devices see to that themselves, on their own threads. */
#pragma once

#include <fenv.h>

/* Sets the environment that the ABI prescribes. Returns the caller's, for lk__float_end. */
static inline fenv_t lk__float_begin(void)
{
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static inline void lk__float_end(const fenv_t *callers)
{
    fesetenv(callers);
}
