/* Linked under AddressSanitizer into programs that mpirun starts: keeps libraries loaded that a program closes. Open
 * MPI closes its modules, and a leak found afterwards cannot be told to be theirs. */
#include <dlfcn.h>

/* Visible, so that it is called in place of the system's. */
__attribute__((visibility("default"))) int dlclose(void *library)
{
    (void)library;
    return 0;
}
