/* Lists the devices of a PJRT plug-in, such as libtpu.so for TPUs. This library has no kernels for them, so nothing
 * computes there. */
#ifndef LOCKSTEP_PJRT_H
#define LOCKSTEP_PJRT_H

#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_pjrt {
    const char *path;           /* of the plug-in */
    int major, minor;           /* version of PJRT's C API that it was built for */
    const char *platform;       /* "tpu" */
    const char *version;        /* of the platform, in the plug-in's words, on one line */
    int n_devices;              /* that this process can use */
    const char *const *devices; /* [n_devices]: descriptions in the plug-in's words, each on one line */
} lk_pjrt;

/* Loads the plug-in `path`, lists its devices, and releases them; the plug-in stays loaded. NULL: that of
 * $PJRT_PLUGIN_LIBRARY_PATH, else of $TPU_LIBRARY_PATH. Blocks as long as the plug-in takes, which may be minutes. The
 * caller releases *pjrt. Errors: LK_ERR_NOT_FOUND (nothing names a plug-in), LK_ERR_DEVICE (it cannot be loaded),
 * LK_ERR_UNSUPPORTED (not a plug-in, or of an unknown version), LK_ERR_BACKEND (an error of the plug-in),
 * LK_ERR_MEMORY. */
LK_API lk_status lk_pjrt_find(const char *path, lk_pjrt **pjrt);
LK_API void lk_pjrt_release(lk_pjrt *pjrt); /* NULL is fine */

/* The path that lk_pjrt_find loads for NULL; NULL: nothing names a plug-in. */
LK_API const char *lk_pjrt_default_path(void);

#ifdef __cplusplus
}
#endif

#endif
