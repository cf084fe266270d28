/* Mutations of safetensors files: they keep the length of the header right, so that the header is read. */
#pragma once

#include "fuzz.h"

#include <string.h>

/* As LLVMFuzzerCustomMutator. */
static inline size_t fuzz_safetensors_mutate(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    enum { LENGTH = 8 };
    uint64_t header = 0;
    if (size >= LENGTH)
        memcpy(&header, data, LENGTH);
    if (size < LENGTH || header > size - LENGTH || seed % 8 == 0)
        return LLVMFuzzerMutate(data, size, most);
    size_t values = size - LENGTH - header;
    if (seed % 8 == 1)
        return LENGTH + header + LLVMFuzzerMutate(data + LENGTH + header, values, most - LENGTH - header);
    /* The values move behind the memory in which the header may grow. */
    uint8_t *kept = malloc(values + 1);
    FUZZ_CHECK(kept);
    memcpy(kept, data + LENGTH + header, values);
    header = LLVMFuzzerMutate(data + LENGTH, header, most - LENGTH - values);
    memcpy(data, &header, LENGTH);
    memcpy(data + LENGTH + header, kept, values);
    free(kept);
    return LENGTH + header + values;
}
