/* Reads the files of which pages about runs are made. The first byte says which. */
#include "fuzz.h"

#include "io/bytes.h"
#include "report/page_parts.h"
#include "report/step_records.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_bytes out = {0};
    if (size < 1)
        return 0;
    const char *path = fuzz_file(data + 1, size - 1);
    if (data[0] == 's') {
        lk_step_records steps = {0};
        if (fuzz_went_well(lk__step_records_read(path, &steps)))
            for (int64_t i = 1; i < steps.count; i++)
                FUZZ_CHECK(steps.column[LK_STEP_NUMBER][i] > steps.column[LK_STEP_NUMBER][i - 1]);
        lk__step_records_free(&steps);
        return 0;
    }
    bool well = fuzz_went_well(data[0] == 't' ? lk__page_put_trace(&out, path)
                                              : lk__page_put_evaluation(&out, path, "/nowhere"));
    FUZZ_CHECK(well || out.size == 0);
    lk__bytes_char(&out, '\0');
    FUZZ_CHECK(!out.failed && !strstr((const char *)out.data, "<script") && !strstr((const char *)out.data, "<h1"));
    lk__bytes_free(&out);
    return 0;
}
