/* Keeps the plans that cuDNN makes for convolutions, each in a file of the user's cache folder, so that only the first
 * process that needs a plan waits for it. */
#pragma once

#include "cuda/driver.h"

/* For lk_gpu_driver.keep_plans. A file that is damaged, belongs to somebody else, or may be written by others is
 * ignored with a warning, because it contains kernels; the plan is made again. The first plan that cannot be kept
 * causes a warning, too. */
extern const lk_gpu_plan_files lk__cuda_plan_files;
