/* Data sets in the memory of the devices, which then prepare the images. */
#pragma once

#include "train/trainer_data.h"

/* Uploads the data sets to all devices if config.data.memory asks for it: sets data.train_on_devices and
 * data.val_on_devices, plan.data_on_devices and plan.data_too_large. Errors: LK_ERR_MEMORY (`device` was asked for, and
 * the data do not fit). */
lk_status lk__device_data_open(lk_trainer *trainer);
void lk__device_data_release(lk_device_data *data);

/* Sets the epoch of the shards that come next. data NULL: does nothing. */
lk_status lk__device_data_start(lk_device_data *data, int64_t epoch);

/* The epoch that was set, i64 [] on the replica's device. data NULL: NULL. */
lk_tensor *lk__device_data_epoch(const lk_device_data *data, int replica);

/* Prepares the shard's images and labels from its indices. epoch: lk__device_data_epoch or, while a program is
 * recorded, the program's input for it. Does nothing if the shard has images already, or data is NULL. */
lk_status lk__device_data_prepare(const lk_device_data *data, lk_tensor *epoch, lk_shard *shard);
