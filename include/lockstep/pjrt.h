/* Devices that a PJRT plug-in drives, as libtpu.so does TPUs. They can be found and named; this library has no kernels
 * for them, so nothing computes there. */
#ifndef LOCKSTEP_PJRT_H
#define LOCKSTEP_PJRT_H

#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_pjrt {
    const char *path;     /* of the plug-in */
    int major, minor;     /* version of PJRT's C API that it was built for */
    const char *platform; /* "tpu", and its version in the plug-in's own words, on one line */
    const char *version;
    int n_devices;              /* that this process can reach */
    const char *const *devices; /* [n_devices]: the plug-in's own words for each, on one line */
} lk_pjrt;

/* Loads the plug-in `path`, asks it for its devices, and lets go of them; it stays loaded. NULL: what
 * $PJRT_PLUGIN_LIBRARY_PATH names, else $TPU_LIBRARY_PATH. Blocks as long as the plug-in takes. Errors:
 * LK_ERR_NOT_FOUND (nothing names a plug-in), LK_ERR_DEVICE (it cannot be loaded), LK_ERR_UNSUPPORTED (it is none, or
 * of a version that is not known), LK_ERR_BACKEND (what it reports), LK_ERR_MEMORY. */
LK_API lk_status lk_pjrt_find(const char *path, lk_pjrt **pjrt);
LK_API void lk_pjrt_release(lk_pjrt *pjrt); /* NULL is fine */

/* What lk_pjrt_find would load for NULL; NULL: nothing names a plug-in. */
LK_API const char *lk_pjrt_default_path(void);

#ifdef __cplusplus
}
#endif

#endif
