/* The settings that identify a run. */
#pragma once

#include "lockstep/record.h"
#include "lockstep/train.h"

/* A setting that is not set, or whose number is outside its option's range, is LK_FIELD_NONE. setting->text is the
 * value as text, whatever its kind; "" if it is not set. `setting` is valid during the call only. */
typedef lk_status (*lk__setting_fn)(void *user, const lk_field *setting);

/* Calls `fn` for every recorded option of lk_train_options, and for --bucket-mb if gradients are compressed, with the
 * value that the plan uses, then for the plan's other facts: the source and number of the samples, parameters, devices,
 * the hash of the implementations, the rate that scale-lr makes of base-lr. Ends with the first error of `fn`. */
lk_status lk__settings_visit(const lk_trainer *trainer, lk__setting_fn fn, void *user);
