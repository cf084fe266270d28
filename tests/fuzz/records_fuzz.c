/* Reads records of runs, at once and in two parts. */
#include "fuzz.h"

#include "lockstep/runs.h"
#include "lockstep/tensor.h"
#include "report/run_records.h"

#include <math.h>
#include <string.h>

/* A file that has grown must give what it gives when it is read at once. */
static void check_following(const uint8_t *data, size_t size, const char *expected)
{
    lk_run *run;
    FUZZ_CHECK(fuzz_went_well(lk_run_read(fuzz_file(data, size / 2), &run)));
    fuzz_file(data, size);
    FUZZ_CHECK(fuzz_went_well(lk__run_follow(run)));
    char *text = lk_run_json(run);
    FUZZ_CHECK(text && strcmp(text, expected) == 0);
    lk_free(text);
    lk_run_release(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_run *run;
    double accuracy;
    if (!fuzz_went_well(lk_run_read(fuzz_file(data, size), &run)))
        return 0;
    FUZZ_CHECK(run->n_epochs >= 0 && (size_t)run->n_epochs <= size);
    for (int64_t i = 1; i < run->n_epochs; i++)
        FUZZ_CHECK(run->epochs[i].epoch > run->epochs[i - 1].epoch);
    for (int i = 0; i < run->n_settings; i++)
        FUZZ_CHECK(lk_run_get_setting(run, run->settings[i].name));
    const lk_run_epoch *best = lk_run_best(run, &accuracy);
    FUZZ_CHECK(!best == !!isnan(accuracy));
    char *text = lk_run_json(run);
    FUZZ_CHECK(text && text[strlen(text) - 1] == '}');
    check_following(data, size, text);
    lk_free(text);
    lk_run_release(run);
    return 0;
}
