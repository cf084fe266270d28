/* PJRT plug-ins, such as libtpu.so for TPUs: what devices one has, and which one is used. Devices pjrt:0, pjrt:1, … are
 * those of the plug-in in use; tpu:0, … are the same if they are TPUs. */
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

/* The same in another process, which is ended after `seconds`: looking for devices can take minutes, and cannot be
 * stopped otherwise. LK_ERR_DEVICE if it takes longer, or if the plug-in crashes. */
#define LK_PJRT_SECONDS 60.0
LK_API lk_status lk_pjrt_find_within(const char *path, double seconds, lk_pjrt **pjrt);

/* Makes devices pjrt:N and tpu:N those of the plug-in `path`; NULL: those of the one that was set before, or that the
 * environment names. It is loaded when the first of its devices is opened, and stays. Errors: LK_ERR_STATE (another one
 * is loaded already). */
LK_API lk_status lk_pjrt_use(const char *path);

/* The path that lk_pjrt_find loads for NULL; NULL: nothing names a plug-in. */
LK_API const char *lk_pjrt_default_path(void);

#ifdef __cplusplus
}
#endif

#endif
