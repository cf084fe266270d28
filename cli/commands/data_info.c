#include "cli/commands/data_command.h"

#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 5, BAR = 30 };

/* --- a split ------------------------------------------------------------------------------------------------------ */

static lk_status info_print_moments(const lk_dataset *dataset)
{
    lk_channel_moments moments;
    lk_status status = lk_dataset_moments(dataset, &moments);
    if (status != LK_OK)
        return status;
    for (int64_t c = 0; c < moments.channels; c++) {
        printf("  channel %lld    mean %.6f, deviation %.6f", (long long)c, moments.mean[c], moments.deviation[c]);
        puts(c == 0 ? " (of bytes / 255)" : "");
    }
    lk_channel_moments_free(&moments);
    return LK_OK;
}

static lk_status info_print_classes(const lk_dataset *dataset)
{
    int64_t classes = lk_dataset_classes(dataset), most = 1;
    int digits = snprintf(NULL, 0, "%lld", (long long)classes - 1);
    int64_t *counts = calloc((size_t)classes, sizeof *counts);
    if (!counts)
        return LK_ERR_MEMORY;
    lk_dataset_class_counts(dataset, counts);
    for (int64_t c = 0; c < classes; c++)
        most = counts[c] > most ? counts[c] : most;
    for (int64_t c = 0; c < classes; c++) {
        char text[32];
        printf("  %8lld  %5.1f%%  ", (long long)counts[c],
               100.0 * (double)counts[c] / (double)lk_dataset_count(dataset));
        for (int64_t i = 0; i < BAR; i++)
            putchar(i * most < counts[c] * BAR ? '#' : ' ');
        printf("  %*lld ", digits < 3 ? 3 : digits, (long long)c);
        cli_print_clean(cli_data_class(dataset, c, text), stdout);
        putchar('\n');
    }
    free(counts);
    return LK_OK;
}

/* --- images that occur twice -------------------------------------------------------------------------------------- */

static void info_print_sample(const lk_dataset *dataset, int64_t index)
{
    const char *name = lk_dataset_sample_name(dataset, index);
    if (name)
        cli_print_clean(name, stdout);
    else
        printf("#%lld", (long long)index);
}

static void info_print_pair(const lk_dataset *dataset, int64_t i, const lk_dataset *in, int64_t j)
{
    int a = lk_dataset_labels(dataset)[i], b = lk_dataset_labels(in)[j];
    char text[2][32];
    fputs("    ", stdout);
    info_print_sample(dataset, i);
    fputs(" is ", stdout);
    info_print_sample(in, j);
    if (a != b) {
        fputs(", as ", stdout);
        cli_print_clean(cli_data_class(dataset, a, text[0]), stdout);
        fputs(" and ", stdout);
        cli_print_clean(cli_data_class(in, b, text[1]), stdout);
    }
    putchar('\n');
}

static lk_status info_print_equal(const lk_dataset *dataset, const lk_dataset *in, const char *what)
{
    int64_t count = lk_dataset_count(dataset), found = 0, contrary = 0;
    int64_t *equals = calloc((size_t)count, sizeof *equals);
    if (!equals)
        return LK_ERR_MEMORY;
    lk_status status = lk_dataset_find_equal(dataset, in, equals);
    for (int64_t i = 0; i < count; i++) {
        if (equals[i] < 0 || (in == dataset && equals[i] == i)) {
            equals[i] = -1;
            continue;
        }
        found++;
        contrary += lk_dataset_labels(dataset)[i] != lk_dataset_labels(in)[equals[i]];
    }
    if (status == LK_OK) {
        printf("  %lld %s %s", (long long)found, found == 1 ? "image is" : "images are", what);
        printf(contrary ? ", %lld of them under another label\n" : "\n", (long long)contrary);
        for (int64_t i = 0, named = 0; i < count && named < NAMED; i++)
            if (equals[i] >= 0) {
                info_print_pair(dataset, i, in, equals[i]);
                named++;
            }
        if (found > NAMED)
            puts("    …");
    }
    free(equals);
    return status;
}

/* --- the data set ------------------------------------------------------------------------------------------------- */

static lk_status info_print_split(const char *name, const lk_dataset *dataset)
{
    int64_t count = lk_dataset_count(dataset), classes = lk_dataset_classes(dataset);
    printf("%s: %lld image%s of ", name, (long long)count, count == 1 ? "" : "s");
    cli_data_print_shape(dataset);
    printf(", %lld class%s; ", (long long)classes, classes == 1 ? "" : "es");
    cli_print_clean(lk_dataset_source(dataset), stdout);
    putchar('\n');
    lk_status status = info_print_moments(dataset);
    if (status == LK_OK)
        status = info_print_classes(dataset);
    if (status == LK_OK)
        status = info_print_equal(dataset, dataset, "the same as an earlier one");
    return status;
}

/* Reports a missing validation set and goes on without it. */
static lk_status info_open_test(const data_config *config, lk_dataset **test)
{
    lk_status status = cli_data_open(config, config->train.data.name, LK_SPLIT_TEST, test);
    if (status != LK_ERR_ARGUMENT)
        return status;
    cli_print_clean(lk_error_message(), stdout);
    putchar('\n');
    lk_error_clear();
    return LK_OK;
}

int cli_data_info(data_config *config)
{
    lk_dataset *train, *test = NULL;
    lk_status status = cli_data_open_train(config, &train);
    if (status == LK_OK)
        status = info_print_split("train", train);
    if (status == LK_OK)
        status = info_open_test(config, &test);
    if (status == LK_OK && test)
        status = info_print_split("validation", test);
    if (status == LK_OK && test)
        status = info_print_equal(test, train, "in the training set too");
    lk_dataset_release(train);
    lk_dataset_release(test);
    if (status == LK_ERR_MEMORY && lk_error_status() == LK_OK) {
        cli_out_of_memory();
        return 1;
    }
    return status == LK_OK ? 0 : cli_fail();
}
