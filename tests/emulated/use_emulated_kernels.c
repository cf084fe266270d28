/* If this is linked into a test, its CPU devices run kernels for sixteen lanes and for bf16, with their layouts and
 * choices; the vectors are emulated if the processor lacks them. */
#include "cpu/isa.h"

__attribute__((constructor)) static void use_emulated_kernels(void)
{
    if (lk__isa_runs(&lk__isa_emulatedbf16))
        lk__isa_force(&lk__isa_emulatedbf16);
}
