#include "program/numbers.h"

#include "base/mem.h"
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STORAGES = 3000 };

static void storages_have_the_numbers_they_were_given(void **state)
{
    (void)state;
    static lk_storage storages[STORAGES];
    lk_numbers numbers = {0};
    int number;
    assert_int_equal(lk__number_of(&numbers, &storages[0]), -1);
    for (int i = 0; i < STORAGES; i++) {
        assert_int_equal(lk__number_give(&numbers, &storages[i], &number), LK_OK);
        assert_int_equal(number, i);
        if (i + 1 < STORAGES)
            assert_int_equal(lk__number_of(&numbers, &storages[i + 1]), -1);
    }
    for (int i = 0; i < STORAGES; i++) {
        assert_int_equal(lk__number_of(&numbers, &storages[i]), i);
        assert_int_equal(lk__number_give(&numbers, &storages[i], &number), LK_OK);
        assert_int_equal(number, i);
    }
    assert_int_equal(numbers.n, STORAGES);
    lk__numbers_free(&numbers);
    assert_int_equal(lk__number_of(&numbers, &storages[0]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(storages_have_the_numbers_they_were_given)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
