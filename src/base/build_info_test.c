#include "lockstep/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_components(void **state)
{
    (void)state;
    size_t count;
    const lk_component *rows = lk_build_components(&count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(lk_build_has(rows[i].name), rows[i].present);
        assert_true(rows[i].present || !rows[i].required);
        assert_int_equal(*rows[i].version != '\0', rows[i].present);
    }
    assert_false(lk_build_has("libnothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_components)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
