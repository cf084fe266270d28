/* If this is linked into a test, its CPU devices run kernels for sixteen lanes, for bf16 and on tiles, with their
 * layouts and choices; vectors and tiles are emulated. */
#include "cpu/isa.h"

__attribute__((constructor)) static void use_emulated_kernels(void)
{
    if (lk__isa_runs(&lk__isa_emulatedamxbf16))
        lk__isa_force(&lk__isa_emulatedamxbf16);
}
