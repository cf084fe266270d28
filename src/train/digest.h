/* Hashes of variables, by which runs are compared. */
#pragma once

#include "lockstep/train.h"

/* XXH3-64 of an f32 tensor's elements in row-major order. Waits for the tensor. */
lk_status lk__hash_tensor(lk_tensor *tensor, uint64_t *hash);
