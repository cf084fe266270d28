/* Reads packed caches. The first byte of the input is the number of pictures in the folder. If the second is 1,
 * checksums are made right, as an attacker would. 88 bytes of the header follow, then the content after the header's
 * page. */
#include "fuzz.h"

#include "data/formats/packed_file.h"

#include <string.h>
#include <xxhash.h>

enum { HEADER = 88, PAGE = 4096, BODY_SUM = 72, HEADER_SUM = 80, MOST_BODY = 1 << 16 };

static void put_sum(uint8_t *file, int place, const void *data, size_t size)
{
    XXH64_hash_t sum = XXH3_64bits(data, size);
    memcpy(file + place, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[PAGE + MOST_BODY];
    uint8_t kept[UINT8_MAX + 1];
    lk_samples samples = {0};
    lk_packed_file pack = {.lock = -1, .fd = -1};
    if (size < 2 + HEADER || size - 2 - HEADER > MOST_BODY)
        return 0;
    int64_t files = data[0];
    size_t body = size - 2 - HEADER;
    memset(file, 0, PAGE);
    memcpy(file, data + 2, HEADER);
    memcpy(file + PAGE, data + 2 + HEADER, body);
    if (data[1] == 1) {
        put_sum(file, BODY_SUM, file + PAGE, body);
        put_sum(file, HEADER_SUM, file, HEADER_SUM);
    }
    snprintf(pack.path, sizeof pack.path, "%s", fuzz_file(file, PAGE + body));
    if (lk__packed_read(&pack, &(lk_packed_key){0}, files, &samples, kept) != LK_OK) {
        FUZZ_CHECK(!samples.mapping);
        return 0;
    }
    FUZZ_CHECK(samples.count >= 1 && samples.count <= files);
    int64_t bytes = samples.count * samples.channels * samples.height * samples.width;
    FUZZ_CHECK(bytes >= 1 && (size_t)(bytes + files) == body);
    fuzz_touch(samples.images, (size_t)bytes);
    fuzz_touch(kept, (size_t)files);
    lk__samples_free(&samples);
    return 0;
}
