/* Linked into a test, this makes its CPU devices run kernels for sixteen lanes, emulated where the processor has no
 * such vectors, with the layouts and choices that go with them. */
#include "cpu/isa.h"

__attribute__((constructor)) static void use_emulated_kernels(void)
{
    if (lk__isa_runs(&lk__isa_emulated))
        lk__isa_force(&lk__isa_emulated);
}
