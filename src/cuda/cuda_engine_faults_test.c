#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/cuda_engine_faults.h"

/* The engine is refused in its direction, for its versions, and on its GPUs alone. */
static void test_forward_engine_5(void **state)
{
    (void)state;
    assert_true(lk_cuda_engine_has_fault(LK_GPU_CONV, 5, 92300, 86));
    assert_true(lk_cuda_engine_has_fault(LK_GPU_CONV, 5, 92301, 86));
    assert_false(lk_cuda_engine_has_fault(LK_GPU_CONV, 5, 92202, 86));
    assert_false(lk_cuda_engine_has_fault(LK_GPU_CONV, 5, 92400, 86));
    assert_false(lk_cuda_engine_has_fault(LK_GPU_CONV, 5, 92301, 90));
    assert_false(lk_cuda_engine_has_fault(LK_GPU_CONV, 0, 92301, 86));
    assert_false(lk_cuda_engine_has_fault(LK_GPU_CONV_INPUT_GRAD, 5, 92301, 86));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward_engine_5)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
