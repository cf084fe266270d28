/* Reads CSV rows. The first byte of the input chooses options: 1 --skip-bad, 2 a label's column, 4 a shape, 8 a limit.
 */
#include "fuzz.h"

#include "data/catalog/own_data.h"
#include "data/formats/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_samples samples = {0};
    if (size < 1)
        return 0;
    lk_dataset_opts opts = {
        .skip_bad = data[0] & 1,
        .label_column = data[0] & 2 ? "class" : NULL,
        .shape = data[0] & 4 ? "1x2x2" : NULL,
        .limit = data[0] & 8 ? 2 : 0,
    };
    if (!fuzz_went_well(lk__csv_read(fuzz_file(data + 1, size - 1), NULL, &opts, &samples)))
        return 0;
    FUZZ_CHECK(samples.count >= 1 && samples.channels >= 1 && samples.height >= 1 && samples.width >= 1);
    FUZZ_CHECK((size_t)samples.count <= size && samples.classes >= 1 && samples.classes <= LK_MAX_CLASSES);
    for (int64_t i = 0; i < samples.count; i++)
        FUZZ_CHECK(samples.labels[i] >= 0 && samples.labels[i] < samples.classes);
    fuzz_touch(samples.images, (size_t)(samples.count * samples.channels * samples.height * samples.width));
    lk__samples_free(&samples);
    return 0;
}
