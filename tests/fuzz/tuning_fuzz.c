/* Reads tunings, for CPUs and for GPUs, whose names of operators are not known when they are read. The machine's first
 * line is added, because without it no other line is read. */
#include "fuzz.h"

#include "lockstep/tuning.h"

#include <string.h>

static void read_for(const char *kind, const uint8_t *data, size_t size)
{
    lk_tuning *machine = lk_tuning_new(kind);
    FUZZ_CHECK(machine);
    size_t first = strlen(lk_tuning_machine(machine)) + 1;
    uint8_t *text = malloc(first + size);
    FUZZ_CHECK(text);
    memcpy(text, lk_tuning_machine(machine), first);
    text[first - 1] = '\n';
    lk_tuning_release(machine);
    if (size > 0)
        memcpy(text + first, data, size);
    lk_tuning *tuning = lk_tuning_read(fuzz_file(text, first + size));
    free(text);
    if (fuzz_went_well(tuning ? LK_OK : lk_error_status())) {
        FUZZ_CHECK(lk_tuning_count(tuning) >= 0 && (size_t)lk_tuning_count(tuning) <= size);
        lk_tuning_hash(tuning);
    }
    lk_tuning_release(tuning);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_for("cpu", data, size);
    read_for("cuda", data, size);
    return 0;
}
