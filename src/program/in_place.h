/* Results that may overwrite an operand. */
#pragma once

#include "program/program.h"

/* Returns whether the call's kernel may write its result in `to` into the memory of its operand in `from`: a function
 * of the kernel, dtypes, shapes and views. */
bool lk__call_may_replace(const lk_call *call, const lk_storage *from, const lk_storage *to);
