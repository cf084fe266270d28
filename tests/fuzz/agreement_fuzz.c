/* Compares the settings that two processes send each other before they train together. Input: a byte of flags, the
 * number of fields of the first list, its bytes, and the bytes of the second list. A first list that is cut off is
 * filled with zeros; a second one that is empty repeats the first. */
#include "fuzz.h"

#include "train/plan/agreement.h"

#include <string.h>

enum { FIELD = 128, SAME_KERNELS = 1 };

/* A list on the heap, at an odd address, that ends where its memory ends. */
typedef struct list {
    unsigned char *memory;
    size_t bytes;
} list;

static list list_of(const uint8_t *data, size_t size, size_t bytes)
{
    list made = {calloc(bytes + 1, 1), bytes};
    FUZZ_CHECK(made.memory);
    if (size > 0)
        memcpy(made.memory + 1, data, size < bytes ? size : bytes);
    return made;
}

static bool compare(const list *a, const list *b, bool same_kernels)
{
    char reason[256];
    memset(reason, 'x', sizeof reason);
    bool same = lk__agreement_is_same(a->memory + 1, a->bytes, b->memory + 1, b->bytes, same_kernels, "the chief",
                                      "a worker on a", reason, sizeof reason);
    if (!same) {
        FUZZ_CHECK(memchr(reason, '\0', sizeof reason));
        FUZZ_CHECK(strncmp(reason, "a worker on a ", 14) == 0);
        for (const char *c = reason; *c; c++)
            FUZZ_CHECK((unsigned char)*c >= ' ' && *c != 0x7f);
    }
    return same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    bool same_kernels = data[0] & SAME_KERNELS;
    size_t first = (size_t)data[1] * FIELD, given = size - 2 < first ? size - 2 : first, rest = size - 2 - given;
    list a = list_of(data + 2, given, first),
         b = rest ? list_of(data + 2 + given, rest, rest) : list_of(data + 2, given, first);
    bool equal = a.bytes == b.bytes && memcmp(a.memory, b.memory, a.bytes + 1) == 0;
    bool same = compare(&a, &b, same_kernels);
    FUZZ_CHECK(same == compare(&b, &a, same_kernels) || !same_kernels); /* names decide what is a kernel */
    FUZZ_CHECK(!equal || same);
    FUZZ_CHECK(!same || a.bytes == b.bytes);
    FUZZ_CHECK(!same || !same_kernels || a.bytes % FIELD != 0 || equal);
    free(a.memory);
    free(b.memory);
    return 0;
}
