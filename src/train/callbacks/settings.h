/* What identifies a run. */
#ifndef LK_TRAIN_CALLBACKS_SETTINGS_H
#define LK_TRAIN_CALLBACKS_SETTINGS_H

#include "lockstep/record.h"
#include "lockstep/train.h"

/* What is not set, a number outside its option's range too, is LK_FIELD_NONE. setting->text is the value as a text,
 * whatever its kind, "" where there is none. Valid during the call only. */
typedef lk_status (*lk__setting_fn)(void *user, const lk_field *setting);

/* Calls `fn` for every recorded option of lk_train_options, by its name and with the value that the plan came to, then
 * for what the plan says besides: where the samples came from, how many there are, parameters, devices, the hash of
 * the implementations, the rate that scale-lr makes of base-lr. Ends with the first error of `fn`. */
lk_status lk__settings_visit(const lk_trainer *trainer, lk__setting_fn fn, void *user);

#endif
