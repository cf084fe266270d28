/* Reads model files and builds valid models. */
#include "fuzz.h"

#include "lockstep/nn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_model *model = lk_model_new(fuzz_file(data, size), (lk_model_input){1, 28, 28, 10});
    if (fuzz_went_well(model ? LK_OK : lk_error_status()))
        FUZZ_CHECK(lk_model_variable_count(model) >= 0);
    lk_model_release(model);
    return 0;
}
