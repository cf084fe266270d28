/* Reads safetensors files and all tensors whose dtype can be read. */
#include "fuzz_safetensors.h"

#include "io/safetensors.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return fuzz_safetensors_mutate(data, size, most, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_safetensors *file;
    if (!fuzz_went_well(lk__safetensors_open(fuzz_file(data, size), &file)))
        return 0;
    for (int i = 0; i < lk__safetensors_count(file); i++) {
        const lk_safetensor *tensor = lk__safetensors_at(file, i);
        FUZZ_CHECK(tensor->begin >= 0 && tensor->bytes >= 0 && (size_t)tensor->begin + (size_t)tensor->bytes <= size);
        FUZZ_CHECK(tensor->count >= 0 && (size_t)tensor->count <= size); /* an element has at least one byte */
        FUZZ_CHECK(lk__safetensors_find(file, tensor->name));
        float *values = malloc(((size_t)tensor->count + 1) * sizeof *values);
        FUZZ_CHECK(values);
        if (fuzz_went_well(lk__safetensors_read(file, tensor, values)))
            fuzz_touch(values, (size_t)tensor->count * sizeof *values);
        free(values);
    }
    lk__safetensors_close(file);
    return 0;
}
