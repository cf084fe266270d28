#pragma once

#include "program/program.h"

/* Adds a call at the end, with its own references to the tensors. */
lk_status lk__program_append(lk_program *program, const lk_call *call);
