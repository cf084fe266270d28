#include "lockstep/options.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct settings {
    int64_t batch_size, seed;
    double rate, momentum;
    const char *model;
    int strategy;
    bool json, progress;
} settings;

static const char *const strategies[] = {"one-device", "mirrored", "central-storage", NULL};

static const lk_option table[] = {
    {.name = "batch-size",
     .type = LK_OPTION_INT64,
     .offset = offsetof(settings, batch_size),
     .environment = "LK_TEST_BATCH_SIZE",
     .default_text = "256",
     .minimum = 1,
     .maximum = 1048576,
     .value = "N",
     .help = "images in a global batch"},
    {.name = "seed",
     .type = LK_OPTION_INT64,
     .offset = offsetof(settings, seed),
     .default_text = "-1",
     .minimum = 0,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "what all randomness starts from"},
    {.name = "base-lr",
     .type = LK_OPTION_DOUBLE,
     .offset = offsetof(settings, rate),
     .default_text = "0.2",
     .least = 1e-12,
     .greatest = 1e6,
     .value = "RATE",
     .help = "learning rate"},
    {.name = "model",
     .type = LK_OPTION_STRING,
     .offset = offsetof(settings, model),
     .value = "NAME",
     .help =
         "what to train, by one of the names that this program knows, which are many and make this a long sentence"},
    {.name = "strategy",
     .type = LK_OPTION_CHOICE,
     .offset = offsetof(settings, strategy),
     .default_text = "mirrored",
     .choices = strategies,
     .value = "NAME",
     .help = "how devices work together"},
    {.name = "json", .type = LK_OPTION_FLAG, .offset = offsetof(settings, json), .help = "one object a line"},
    {.name = "progress",
     .type = LK_OPTION_FLAG,
     .offset = offsetof(settings, progress),
     .default_text = "true",
     .help = "a progress bar"},
    {.name = "momentum",
     .type = LK_OPTION_DOUBLE,
     .offset = offsetof(settings, momentum),
     .default_text = "0.9",
     .least = 0,
     .greatest = LK_BELOW_ONE,
     .value = "M",
     .help = "share of the last update"},
};
enum { COUNT = sizeof table / sizeof table[0] };

static settings defaults(void)
{
    settings made;
    memset(&made, 0xa5, sizeof made);
    assert_int_equal(lk_options_defaults(table, COUNT, &made), LK_OK);
    return made;
}

/* Parses the NULL-terminated words; arguments that are not options are refused. */
static lk_status parse(settings *config, char *const words[])
{
    char *argv[16];
    int argc = 0;
    while (words[argc]) {
        argv[argc] = words[argc];
        argc++;
    }
    lk_error_clear();
    return lk_options_parse(table, COUNT, argc, argv, config, NULL);
}

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})

#define ASSERT_REFUSED(message, ...)                                           \
    do {                                                                       \
        settings unused = defaults();                                          \
        assert_int_equal(parse(&unused, WORDS(__VA_ARGS__)), LK_ERR_ARGUMENT); \
        assert_string_equal(lk_error_message(), message);                      \
    } while (0)

static void test_defaults(void **state)
{
    (void)state;
    settings config = defaults();
    assert_int_equal(config.batch_size, 256);
    assert_int_equal(config.seed, -1);
    assert_true(config.rate == 0.2);
    assert_null(config.model);
    assert_int_equal(config.strategy, 1);
    assert_false(config.json);
    assert_true(config.progress);
}

static void test_environment(void **state)
{
    (void)state;
    settings config;
    setenv("LK_TEST_BATCH_SIZE", "64", 1);
    assert_int_equal(defaults().batch_size, 64);
    config = defaults();
    assert_int_equal(parse(&config, WORDS("--batch-size", "32")), LK_OK);
    assert_int_equal(config.batch_size, 32);

    setenv("LK_TEST_BATCH_SIZE", "", 1);
    assert_int_equal(defaults().batch_size, 256);

    setenv("LK_TEST_BATCH_SIZE", "many", 1);
    lk_error_clear();
    assert_int_equal(lk_options_defaults(table, COUNT, &config), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "LK_TEST_BATCH_SIZE=many: must be an integer from 1 to 1048576");
    unsetenv("LK_TEST_BATCH_SIZE");
}

static void test_forms(void **state)
{
    (void)state;
    settings config = defaults();
    assert_int_equal(parse(&config, WORDS("--batch-size", "8", "--base-lr=1e-3", "--model=a", "--json", "--no-progress",
                                          "--strategy", "central-storage", "--seed=9223372036854775807")),
                     LK_OK);
    assert_int_equal(config.batch_size, 8);
    assert_true(config.rate == 1e-3);
    assert_string_equal(config.model, "a");
    assert_true(config.json);
    assert_false(config.progress);
    assert_int_equal(config.strategy, 2);
    assert_true(config.seed == INT64_MAX);

    assert_int_equal(parse(&config, WORDS("--batch-size", "8", "--json", "--batch-size=9", "--no-json")), LK_OK);
    assert_int_equal(config.batch_size, 9);
    assert_false(config.json);
}

static void test_positionals(void **state)
{
    (void)state;
    settings config = defaults();
    char *argv[] = {"first", "--batch-size", "3", "-", "--", "--json", "last"};
    int count;
    assert_int_equal(lk_options_parse(table, COUNT, 7, argv, &config, &count), LK_OK);
    assert_int_equal(count, 4);
    assert_string_equal(argv[0], "first");
    assert_string_equal(argv[1], "-");
    assert_string_equal(argv[2], "--json");
    assert_string_equal(argv[3], "last");
    assert_false(config.json);
    assert_int_equal(config.batch_size, 3);
    ASSERT_REFUSED("unexpected argument 'lenet'", "--json", "lenet");
}

static void test_refusals(void **state)
{
    (void)state;
    ASSERT_REFUSED("--model '': must be a text that is not empty", "--model=");
    ASSERT_REFUSED("unknown option '--bathc-size': did you mean '--batch-size'?", "--bathc-size", "2");
    ASSERT_REFUSED("unknown option '--bathc-size': did you mean '--batch-size'?", "--bathc-size=2");
    ASSERT_REFUSED("unknown option '--batch': did you mean --batch-size?", "--batch", "2");
    ASSERT_REFUSED("unknown option '--size': did you mean --batch-size?", "--size=2");
    ASSERT_REFUSED("unknown option '--bat': see --help for those there are", "--bat");
    ASSERT_REFUSED("unknown option '--weather': see --help for those there are", "--weather");
    ASSERT_REFUSED("unknown option '--no-model': did you mean '--model'?", "--no-model");
    ASSERT_REFUSED("unknown option '-j': options begin with two hyphens", "-j");
    ASSERT_REFUSED("--batch-size: a value is missing (--batch-size N)", "--batch-size");
    ASSERT_REFUSED("--batch-size: a value is missing (--batch-size N)", "--batch-size", "--json");
    ASSERT_REFUSED("--json takes no value, but has 'yes'", "--json=yes");
    ASSERT_REFUSED("--strategy ring: must be one-device, mirrored or central-storage", "--strategy", "ring");
    ASSERT_REFUSED("--seed -1: must be an integer of at least 0 and below 2^63", "--seed", "-1");
}

static void test_malformed_numbers(void **state)
{
    (void)state;
    static char *const integers[] = {
        "0",   "-1", "1048577", "9223372036854775808", "1e3", "8x", " 8", "0x10", "8 ", "4.0",
        "nan", "",   "+",       "99999999999999999999"};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        char message[128];
        snprintf(message, sizeof message, "--batch-size %s: must be an integer from 1 to 1048576",
                 *integers[i] ? integers[i] : "''");
        ASSERT_REFUSED(message, "--batch-size", integers[i]);
    }
    static char *const numbers[] = {"nan", "inf", "-inf", "1e999", "0x1p3", "0.1.2",
                                    "0,5", "1e7", "0",    "-0.1",  "",      "."};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char message[128];
        snprintf(message, sizeof message, "--base-lr %s: must be a number from 1e-12 to 1e+06",
                 *numbers[i] ? numbers[i] : "''");
        ASSERT_REFUSED(message, "--base-lr", numbers[i]);
    }
}

static void test_a_range_that_ends_below_one(void **state)
{
    (void)state;
    settings config = defaults();
    ASSERT_REFUSED("--momentum 1: must be a number of at least 0 and below 1", "--momentum", "1");
    assert_int_equal(parse(&config, WORDS("--momentum", "0.9999999999999999")), LK_OK);
    assert_true(config.momentum < 1);
}

static void test_text_reads_back(void **state)
{
    (void)state;
    static const double rates[] = {0.2, 0.1 + 0.2, 1.0 / 3.0, 1e-12, 123456.789};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        settings config = defaults(), copy = defaults();
        config.rate = rates[i];
        config.model = "lenet";
        config.json = true;
        config.seed = 7;
        for (size_t j = 0; j < COUNT; j++) {
            char text[64];
            assert_int_equal(lk_options_text(&table[j], &config, text, sizeof text), LK_OK);
            assert_int_equal(lk_options_set(table, COUNT, &copy, table[j].name, text), LK_OK);
            if (table[j].type == LK_OPTION_STRING)
                assert_string_equal(copy.model, "lenet");
        }
        assert_true(copy.rate == rates[i]);
        assert_true(copy.json);
        assert_int_equal(copy.seed, 7);
    }
    char text[32];
    settings config = defaults();
    lk_options_text(&table[2], &config, text, sizeof text);
    assert_string_equal(text, "0.2");
    lk_error_clear();
    assert_int_equal(lk_options_text(&table[4], &config, text, 8), LK_ERR_ARGUMENT);
    const int wrong[] = {-1, 3, INT_MAX};
    for (int i = 0; i < 3; i++) {
        config.strategy = wrong[i];
        lk_error_clear();
        assert_int_equal(lk_options_text(&table[4], &config, text, sizeof text), LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), "is none of the 3 choices"));
    }
}

static void test_set_by_name(void **state)
{
    (void)state;
    settings config = defaults();
    lk_error_clear();
    assert_int_equal(lk_options_set(table, COUNT, &config, "mode", "lenet"), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "unknown option '--mode': did you mean '--model'?");
    lk_error_clear();
    assert_int_equal(lk_options_set(table, COUNT, &config, "json", "maybe"), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "--json maybe: must be true or false");
}

static void test_help(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    lk_options_help(table, COUNT, stream);
    fclose(stream);
    assert_non_null(strstr(text, "  --batch-size N            images in a global batch; an integer from 1 to 1048576"));
    assert_non_null(strstr(text, "(default 256)"));
    assert_non_null(strstr(text, "[$LK_TEST_BATCH_SIZE]"));
    assert_null(strstr(text, "(default -1)"));
    assert_non_null(strstr(text, "  --json                    one object a line\n"));
    assert_non_null(strstr(text, "how devices work together; one-device, mirrored or central-storage"));
    assert_non_null(strstr(text, "\n                            (default mirrored)\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 1, 100);
    free(text);
}

static void test_help_in_groups(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    lk_option grouped[5];
    memcpy(grouped, table, sizeof grouped);
    grouped[1].group = grouped[2].group = "First";
    grouped[3].group = grouped[4].group = "Second";
    FILE *stream = open_memstream(&text, &size);
    lk_options_help(grouped, 5, stream);
    fclose(stream);
    assert_ptr_equal(strstr(text, "  --batch-size"), text);
    char *first = strstr(text, "\n\nFirst:\n  --seed "), *second = strstr(text, "\n\nSecond:\n  --");
    assert_true(first && second && first < second);
    assert_null(strstr(first + 8, "First:"));
    assert_null(strstr(second + 9, "Second:"));
    free(text);
}

static void test_nearest_word(void **state)
{
    (void)state;
    static const char *const words[] = {"train", "verify", "devices", "ops", "doctor", "version", "help"};
    const size_t count = sizeof words / sizeof words[0];
    assert_string_equal(lk_nearest_word("tarin", words, count, sizeof words[0]), "train");
    assert_string_equal(lk_nearest_word("verfy", words, count, sizeof words[0]), "verify");
    assert_string_equal(lk_nearest_word("op", words, count, sizeof words[0]), "ops");
    assert_string_equal(lk_nearest_word("device", words, count, sizeof words[0]), "devices");
    static const char *const short_words[] = {"out", "ops"};
    assert_null(lk_nearest_word("count", short_words, 2, sizeof words[0]));
    assert_string_equal(lk_nearest_word("oyt", short_words, 2, sizeof words[0]), "out");
    assert_null(lk_nearest_word("banana", words, count, sizeof words[0]));
    assert_null(lk_nearest_word("", words, count, sizeof words[0]));
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(lk_nearest_word(longer, words, count, sizeof words[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_positionals),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_malformed_numbers),
        cmocka_unit_test(test_a_range_that_ends_below_one),
        cmocka_unit_test(test_text_reads_back),
        cmocka_unit_test(test_set_by_name),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_help_in_groups),
        cmocka_unit_test(test_nearest_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
