/* Every option of `lockstep train` and `lockstep launch` can be drawn by the soak. */
#include "soak_draw.h"
#include "soak_rules.h"

#include "testing.h"

#include <string.h>

static void test_every_row_can_be_drawn(void **state)
{
    (void)state;
    int count;
    const soak_row *rows = soak_rows(&count);
    assert_null(soak_rows_gap());
    for (int i = 0; i < count; i++)
        for (uint64_t seed = 0; seed < 40 && !rows[i].is_placed; seed++) {
            soak_random random = {seed};
            soak_case drawn = {.device_kind = "cpu"};
            soak_attempt attempt = {.shape = SOAK_SERVERS};
            soak_context context = {.random = &random, .drawn = &drawn, .attempt = &attempt};
            char text[SOAK_VALUE_BYTES], config[8192];
            if (soak_row_draw(&rows[i], &context, true, text) &&
                lk_options_set(rows[i].option, 1, config, rows[i].option->name, text) != LK_OK)
                fail_msg("--%s cannot be '%s'", rows[i].option->name, text);
        }
}

/* A seed draws the same case again, and all rows come up. */
static void test_cases_repeat(void **state)
{
    (void)state;
    static soak_case one, other;
    const soak_means means = {true, true, true, true};
    int count;
    const soak_row *rows = soak_rows(&count);
    bool was_drawn[256] = {false};
    for (uint64_t seed = 0; seed < 3000; seed++) {
        soak_case_draw(seed, &means, &one);
        soak_case_draw(seed, &means, &other);
        assert_memory_equal(&one, &other, sizeof one);
        for (int i = 0; i < count; i++) {
            was_drawn[i] |= rows[i].is_placed;
            for (int s = 0; s < one.settings.count; s++)
                was_drawn[i] |= one.settings.at[s].row == rows[i].option;
            for (int s = 0; s < one.attempts[0].settings.count; s++)
                was_drawn[i] |= one.attempts[0].settings.at[s].row == rows[i].option;
        }
    }
    for (int i = 0; i < count; i++)
        if (!was_drawn[i])
            fail_msg("--%s does not come up", rows[i].option->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row_can_be_drawn),
                                       cmocka_unit_test(test_cases_repeat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
