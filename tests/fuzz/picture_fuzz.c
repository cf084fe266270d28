/* Reads pictures: the header alone, the whole picture, and resized. The results must agree. */
#include "fuzz.h"

#include "lockstep/image.h"

static void resize(const uint8_t *data, size_t size, const lk_image *whole)
{
    lk_image small;
    lk_image_opts opts = {.channels = 3, .height = 28, .width = 28};
    if (!fuzz_went_well(lk_image_decode(data, size, "input", &opts, &small)))
        return;
    FUZZ_CHECK(whole->pixels && small.channels == 3 && small.height == 28 && small.width == 28);
    fuzz_touch(small.pixels, 3 * 28 * 28);
    lk_image_free(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_image header, whole = {0};
    bool is_picture = fuzz_went_well(lk_image_read_header(fuzz_file(data, size), &header));
    /* Larger pictures take too long for thousands of runs. */
    if (is_picture && header.height * header.width > 1 << 18)
        return 0;
    if (!fuzz_went_well(lk_image_decode(data, size, "input", NULL, &whole)))
        return 0;
    FUZZ_CHECK(is_picture && whole.channels == header.channels && whole.height == header.height &&
               whole.width == header.width);
    fuzz_touch(whole.pixels, (size_t)(whole.channels * whole.height * whole.width));
    resize(data, size, &whole);
    lk_image_free(&whole);
    return 0;
}
