/* Texts that name devices: "2xcpu", "cpu:0,cpu:2", "2xcpu:0", "2" (see lk_devices_open). */
#ifndef LK_CORE_DEVICE_SPEC_H
#define LK_CORE_DEVICE_SPEC_H

#include "base/status.h"

typedef struct lk_device_spec_entry {
    const char *kind; /* of the backend: static */
    int index;
} lk_device_spec_entry;

/* Writes the devices that `spec` names, in order, to entries[0 … *count); NULL entries: only counts. The kinds are
 * those of lk__backends. An index beyond what is available is no error here: CPU devices share cores. Errors:
 * LK_ERR_ARGUMENT (malformed, unknown kind, more than `capacity`); *count is 0 then. */
lk_status lk__device_spec_parse(const char *spec, lk_device_spec_entry *entries, int capacity, int *count);

#endif
