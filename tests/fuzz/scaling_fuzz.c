/* Reads scaling reports and computes predictions from them. */
#include "fuzz.h"

#include "report/scaling_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_scaling_report report;
    if (!fuzz_went_well(lk__scaling_read_file(fuzz_file(data, size), false, &report)))
        return 0;
    FUZZ_CHECK(report.devices >= 1 && strlen(report.model) < sizeof report.model);
    lk_scaling_prediction prediction;
    for (int64_t devices = 1; devices <= 1024; devices *= 4) {
        lk_scaling_exchange_seconds(&report, devices);
        lk_scaling_predict(&report, devices, devices % 3 == 0, &prediction);
    }
    lk_scaling_speedup(&report);
    return 0;
}
