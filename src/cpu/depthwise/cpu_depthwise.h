/* conv2d_weight_grad on the kernels of depthwise.h. */
#pragma once

#include "core/op.h"
#include "ops/conv_problem.h"

/* The name that lk_device_implementations shows. Static. */
const char *lk__cpu_depthwise_name(void);

/* Returns whether depthwise.h can run a problem: there are as many groups as channels and filters, and rows have either
 * a stride or dilation. */
bool lk__cpu_depthwise_takes(const lk_conv_problem *problem);

/* Returns whether it should, rather than oneDNN. */
bool lk__cpu_depthwise_is_worth(const lk_conv_problem *problem);

/* Runs a call that depthwise.h takes. */
lk_status lk__cpu_depthwise_conv2d_weight_grad(lk_call *call);
