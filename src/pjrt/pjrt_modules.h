/* Modules made of calls. A module is compiled once for each text, in the process: devices share it. */
#pragma once

#include "core/op.h"
#include "pjrt/pjrt_client.h"

typedef struct lk_pjrt_modules lk_pjrt_modules;

lk_status lk__pjrt_modules_new(const lk_pjrt_session *session, lk_pjrt_modules **modules);

/* Returns the compiled module with this text. From any thread; others that need a module wait for the compiler. */
lk_status lk__pjrt_modules_get(lk_pjrt_modules *modules, const char *text, size_t size, lk_pjrt_module **module);
