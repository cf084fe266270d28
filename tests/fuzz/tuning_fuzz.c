/* Reads tunings. This machine's first line is added, because without it no other line is read. */
#include "fuzz.h"

#include "lockstep/tuning.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char machine[512];
    if (!*machine) {
        lk_tuning *tuning = lk_tuning_new("cpu");
        FUZZ_CHECK(tuning);
        snprintf(machine, sizeof machine, "%s\n", lk_tuning_machine(tuning));
        lk_tuning_release(tuning);
    }
    size_t first = strlen(machine);
    uint8_t *text = malloc(first + size);
    FUZZ_CHECK(text);
    memcpy(text, machine, first);
    if (size > 0)
        memcpy(text + first, data, size);
    lk_tuning *tuning = lk_tuning_read(fuzz_file(text, first + size));
    free(text);
    if (fuzz_went_well(tuning ? LK_OK : lk_error_status()))
        FUZZ_CHECK(lk_tuning_count(tuning) >= 0 && (size_t)lk_tuning_count(tuning) <= size);
    lk_tuning_release(tuning);
    return 0;
}
