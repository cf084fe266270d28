/* The table of the reference kernels, registered as "c". */
#pragma once

#include "core/backend.h"

extern const lk_kernel_table lk__ref_table;
