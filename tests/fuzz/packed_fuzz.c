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

/* Most mutations keep the checksums right, and change bytes of the header where its numbers are, or the size of the
 * content to the one that they give. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    enum { NUMBERS = 32, FILES = 2 + NUMBERS, COUNT = FILES + 8, IMAGE = COUNT + 8 };
    int64_t sizes[3], count;
    if (size < 2 + HEADER || seed % 8 == 0)
        return LLVMFuzzerMutate(data, size, most);
    data[1] = seed % 16 > 1;
    if (seed % 8 < 4) {
        LLVMFuzzerMutate(data + FILES, BODY_SUM - NUMBERS, BODY_SUM - NUMBERS);
        data[0] = seed % 8 == 1 ? data[0] : data[FILES];
        return size;
    }
    memcpy(&count, data + COUNT, sizeof count);
    memcpy(sizes, data + IMAGE, sizeof sizes);
    size_t body = (size_t)data[0] + (size_t)count * (size_t)sizes[0] * (size_t)sizes[1] * (size_t)sizes[2];
    if (seed % 8 == 4 || body > most - 2 - HEADER)
        return 2 + HEADER + LLVMFuzzerMutate(data + 2 + HEADER, size - 2 - HEADER, most - 2 - HEADER);
    if (2 + HEADER + body > size)
        memset(data + size, 0, 2 + HEADER + body - size);
    return 2 + HEADER + body;
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
