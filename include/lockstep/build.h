/* The version of this build, and the libraries that it uses. */
#ifndef LOCKSTEP_BUILD_H
#define LOCKSTEP_BUILD_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Another library that this one uses. */
typedef struct lk_component {
    const char *name;    /* "oneDNN" */
    bool required;       /* every build needs it */
    bool present;        /* this build uses it */
    const char *version; /* of the library in use, or, for an optional one, of the one built with; "" if not present */
    const char *adds;    /* its purpose: "fast CPU kernels" */
    const char *package; /* package of Debian and Ubuntu to build with */
} lk_component;

/* All components, required ones first; sets *count to their number. Static. Any thread. */
LK_API const lk_component *lk_build_components(size_t *count);

/* Returns whether this build uses the component of that name; false: it does not, or there is none. Any thread. */
LK_API bool lk_build_has(const char *name);

/* The version: "0.1.0". Static. */
LK_API const char *lk_build_version(void);

/* The revision of the source, "v0.1.0-3-g52de2ad", with "-dirty" if files were changed; "": not known. Static. */
LK_API const char *lk_build_revision(void);

/* Compiler and type of build, "gcc 12.2.0, Release", with "sanitizers: thread" if there are any. Static. */
LK_API const char *lk_build_compiler(void);

#ifdef __cplusplus
}
#endif

#endif
