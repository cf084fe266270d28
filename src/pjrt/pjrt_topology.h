/* Compiling for devices that are not there, which a plug-in knows by a topology's name. */
#pragma once

#include "lockstep/compile.h"
#include "base/status.h"
#include "pjrt/pjrt_plugin.h"

/* Compiles StableHLO in MLIR's text for the topology with a plug-in that was loaded. Sets *executable to
 * result->out_bytes bytes, the executable in the plug-in's own form, which the caller frees with lk__free; NULL: not
 * wanted. Sets the members of *result that say so. */
lk_status lk__pjrt_compile_for(const lk_pjrt_plugin *plugin, const char *topology, const char *text, size_t size,
                               char **executable, lk_compile_result *result);
