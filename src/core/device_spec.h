/* Texts that name devices: "2xcpu", "cpu:0,cpu:2", "2xcpu:0", "2" (see lk_devices_open). */
#pragma once

#include "base/status.h"

typedef struct lk_device_spec_entry {
    const char *kind; /* the backend's: static */
    int index;
} lk_device_spec_entry;

/* Writes the devices that `spec` names, in order, to entries[0 … *count); with `entries` NULL it only counts them.
 * Kinds are those of lk__backends. An index beyond the available devices is no error here, because CPU devices may
 * share cores.
 * Errors: LK_ERR_ARGUMENT (malformed, unknown kind, more than `capacity`), with *count 0. */
lk_status lk__device_spec_parse(const char *spec, lk_device_spec_entry *entries, int capacity, int *count);
