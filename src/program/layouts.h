#pragma once

#include "program/program.h"

/* Sets lk_call.plain_next. No result depends on it. Call it after lk__program_find_values. */
lk_status lk__program_choose_layouts(lk_program *program);
