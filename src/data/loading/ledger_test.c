#include "data/data_testing.h"

static lk_ledger_report report_of(const lk_ledger *ledger)
{
    lk_ledger_report report;
    lk_ledger_check(ledger, &report);
    return report;
}

static void expect_report(const lk_ledger *ledger, int64_t used_once, int64_t unused, int64_t repeated,
                          int64_t first_bad)
{
    lk_ledger_report report = report_of(ledger);
    assert_int_equal(report.used_once, used_once);
    assert_int_equal(report.unused, unused);
    assert_int_equal(report.repeated, repeated);
    assert_int_equal(report.first_bad, first_bad);
}

static void test_counts(void **state)
{
    (void)state;
    lk_ledger *ledger;
    assert_ok(lk_ledger_new(5, &ledger));
    expect_report(ledger, 0, 5, 0, 0);
    assert_ok(lk_ledger_add(ledger, (const int64_t[]){4, 0, 1}, 3));
    expect_report(ledger, 3, 2, 0, 2);
    assert_ok(lk_ledger_add(ledger, (const int64_t[]){2, 3}, 2));
    expect_report(ledger, 5, 0, 0, -1);
    assert_ok(lk_ledger_add(ledger, (const int64_t[]){3}, 1));
    expect_report(ledger, 4, 0, 1, 3);
    assert_ok(lk_ledger_add(ledger, NULL, 0));
    lk_ledger_reset(ledger);
    expect_report(ledger, 0, 5, 0, 0);
    lk_ledger_release(ledger);
    lk_ledger_release(NULL);
}

/* 257 uses must not look like one. */
static void test_saturates(void **state)
{
    (void)state;
    lk_ledger *ledger;
    assert_ok(lk_ledger_new(1, &ledger));
    for (int i = 0; i < 257; i++)
        assert_ok(lk_ledger_add(ledger, (const int64_t[]){0}, 1));
    expect_report(ledger, 0, 0, 1, 0);
    lk_ledger_release(ledger);
}

static void test_refuses_foreign_samples(void **state)
{
    (void)state;
    lk_ledger *ledger;
    expect_failure(lk_ledger_new(-1, &ledger), LK_ERR_ARGUMENT, "-1 samples");
    assert_ok(lk_ledger_new(3, &ledger));
    expect_failure(lk_ledger_add(ledger, (const int64_t[]){0, 3}, 2), LK_ERR_ARGUMENT, "sample 3", "3 samples");
    expect_failure(lk_ledger_add(ledger, (const int64_t[]){0, -1}, 2), LK_ERR_ARGUMENT, "sample -1");
    expect_report(ledger, 0, 3, 0, 0);
    lk_ledger_release(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_saturates),
        cmocka_unit_test(test_refuses_foreign_samples),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
