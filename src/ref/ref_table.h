/* The reference kernels as a table. Registered as "c". */
#ifndef LK_REF_REF_TABLE_H
#define LK_REF_REF_TABLE_H

#include "core/backend.h"

extern const lk_kernel_table lk__ref_table;

#endif
