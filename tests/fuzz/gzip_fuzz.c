/* Reads IDX files that this target compresses, because random changes of compressed files would only break checksums.
 * The first two bytes say where the content is cut into two gzip members and how many bytes are missing at the end. */
#include "fuzz.h"

#include "data/formats/idx.h"

#include <string.h>
#include <zlib.h>

static size_t compress_member(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream stream = {0};
    FUZZ_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (unsigned)size;
    stream.next_out = out;
    stream.avail_out = (unsigned)room;
    FUZZ_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&stream);
    return room - stream.avail_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_idx idx;
    if (size < 2)
        return 0;
    size_t content = size - 2, first = content * data[0] / 255, room = 2 * content + 4096;
    uint8_t *file = malloc(room);
    FUZZ_CHECK(file);
    size_t member = compress_member(data + 2, first, file, room), bytes = member;
    bytes += compress_member(data + 2 + first, content - first, file + bytes, room - bytes);
    bytes -= data[1] < bytes ? data[1] : bytes;
    content = bytes == member ? first : content; /* just the second member is missing */
    lk_status status = lk__idx_open(fuzz_file(file, bytes), 1, LK__IDX_MAX_DIMS, &idx);
    free(file);
    if (!fuzz_went_well(status))
        return 0;
    size_t count = 1, header = 4;
    for (int d = 0; d < idx.dims; d++, header += 4)
        count *= (size_t)idx.dim[d];
    FUZZ_CHECK(header + count == content && memcmp(idx.data, data + 2 + header, count) == 0);
    lk__idx_close(&idx);
    return 0;
}
