/* Compiling for devices that are not there, which a plug-in knows by a topology's name. */
#pragma once

#include "lockstep/compile.h"
#include "base/status.h"

/* Loads the plug-in `path` and compiles StableHLO in MLIR's text for the topology. Writes the executable to the file
 * `out` if that is not NULL. Sets the members of *result that say so. */
lk_status lk__pjrt_compile_for(const char *path, const char *topology, const char *text, size_t size, const char *out,
                               lk_compile_result *result);
