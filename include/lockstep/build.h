/* What this build of the library is and which libraries it uses. */
#ifndef LOCKSTEP_BUILD_H
#define LOCKSTEP_BUILD_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A library below this one. */
typedef struct lk_component {
    const char *name; /* "oneDNN" */
    bool required;    /* there is no build without it */
    bool present;     /* this build uses it */
    const char
        *version;     /* of the library in use, or, for an optional one, of that it was built with; "" if not present */
    const char *adds; /* what it is for: "fast CPU kernels" */
    const char *package; /* the Debian and Ubuntu package to build with */
} lk_component;

/* All components, required ones first, in *count rows. Static: never freed, the same in every call. Any thread. */
LK_API const lk_component *lk_build_components(size_t *count);

/* Whether this build uses the component of that name; false also where there is none. Any thread. */
LK_API bool lk_build_has(const char *name);

/* "0.1.0" */
LK_API const char *lk_build_version(void);

/* The revision of the source ("v0.1.0-3-g52de2ad", with "-dirty" for changed files), or "" where it was not known. */
LK_API const char *lk_build_revision(void);

/* "gcc 12.2.0, Release", with "sanitizers: thread" where there are any. */
LK_API const char *lk_build_compiler(void);

#ifdef __cplusplus
}
#endif

#endif
