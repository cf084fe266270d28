#include "cli/text/evaluation_text.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const char *evaluation_text_class_name(const cli_evaluation *e, int64_t class, char number[24])
{
    snprintf(number, 24, "%" PRId64, class);
    return e->names[class] ? e->names[class] : number;
}

static int evaluation_text_class_names_width(const cli_evaluation *e)
{
    int width = 5;
    char number[24];
    for (int64_t c = 0; c < e->found.classes; c++) {
        int own = cli_text_width(evaluation_text_class_name(e, c, number));
        width = own > width ? own : width;
    }
    return width;
}

static void evaluation_text_class_name_print(const cli_evaluation *e, int64_t class, int width)
{
    char number[24];
    cli_print_padded(evaluation_text_class_name(e, class, number), width);
}

static void evaluation_print_share(double share)
{
    if (isnan(share))
        printf("  %9s", "-");
    else
        printf("  %9.4f", share);
}

static void evaluation_print_classes(const cli_evaluation *e, int width)
{
    const lk_evaluation *f = &e->found;
    printf("%-*s   images  precision     recall         F1\n", width, "class");
    for (int64_t c = 0; c < f->classes; c++) {
        evaluation_text_class_name_print(e, c, width);
        printf("  %7" PRId64, f->labeled[c]);
        evaluation_print_share(f->precision[c]);
        evaluation_print_share(f->recall[c]);
        evaluation_print_share(f->f1[c]);
        putchar('\n');
    }
}

/* A line of more columns does not fit a terminal; the picture of --out shows all classes. */
enum { MOST_COLUMNS = 20, DIGITS = 4, LISTED = 10 };

/* Prints nothing where a terminal is too narrow. */
static void evaluation_print_matrix(const cli_evaluation *e, int width)
{
    const lk_evaluation *f = &e->found;
    int digits = snprintf(NULL, 0, "%" PRId64, f->classes), columns = cli_columns(stdout);
    for (int64_t i = 0; i < f->classes * f->classes; i++) {
        int own = snprintf(NULL, 0, "%" PRId64, f->confusion[i]);
        digits = own > digits ? own : digits;
    }
    if (digits < DIGITS && width + f->classes * (1 + DIGITS) <= columns)
        digits = DIGITS;
    if (width + f->classes * (1 + digits) > columns)
        return;
    printf("\nlabel (row) predicted as (column)\n%*s", width, "");
    for (int64_t k = 0; k < f->classes; k++)
        printf(" %*" PRId64, digits, k);
    putchar('\n');
    for (int64_t c = 0; c < f->classes; c++) {
        evaluation_text_class_name_print(e, c, width);
        for (int64_t k = 0; k < f->classes; k++)
            printf(" %*" PRId64, digits, f->confusion[c * f->classes + k]);
        putchar('\n');
    }
}

static void evaluation_print_confused(const cli_evaluation *e)
{
    const lk_evaluation *f = &e->found;
    int64_t below = INT64_MAX, at = -1;
    printf("\nmost often confused\n");
    for (int listed = 0; listed < LISTED; listed++) {
        int64_t most = 0, pair = -1;
        for (int64_t i = 0; i < f->classes * f->classes; i++) {
            bool comes_later = f->confusion[i] < below || (f->confusion[i] == below && i > at);
            if (f->confusion[i] > most && comes_later && i / f->classes != i % f->classes) {
                most = f->confusion[i];
                pair = i;
            }
        }
        if (pair < 0)
            return;
        printf("  %7" PRId64 "  ", most);
        evaluation_text_class_name_print(e, pair / f->classes, 0);
        fputs(" as ", stdout);
        evaluation_text_class_name_print(e, pair % f->classes, 0);
        putchar('\n');
        below = most;
        at = pair;
    }
}

/* Prints nothing if samples have no files. */
static void evaluation_print_mistakes(const cli_evaluation *e)
{
    const lk_evaluation *f = &e->found;
    for (int64_t i = 0; i < f->n_mistakes && i < LISTED; i++) {
        const lk_mistake *m = &f->mistakes[i];
        const char *file = lk_dataset_sample_name(e->dataset, m->sample);
        if (!file)
            return;
        if (i == 0)
            printf("\nworst mistakes\n");
        char label[24], predicted[24];
        cli_printf_wrapped(stdout, "  ", "%s: %s as %s %.4f", file, evaluation_text_class_name(e, m->label, label),
                           evaluation_text_class_name(e, m->predicted, predicted), (double)m->predicted_probability);
    }
}

void cli_print_evaluation(const cli_evaluation *e)
{
    const lk_evaluation *f = &e->found;
    int width = evaluation_text_class_names_width(e);
    cli_printf_wrapped(stdout, "", "%s of %s on %s (%s: %s)", e->info->model, e->info->folder,
                       lk_dataset_name(e->dataset), e->split, lk_dataset_source(e->dataset));
    printf("accuracy %.4f (%" PRId64 " of %" PRId64 "), loss %.4f\n\n", lk_mean_value(f->accuracy), f->count - f->wrong,
           f->count, lk_mean_value(f->loss));
    evaluation_print_classes(e, width);
    if (f->classes <= MOST_COLUMNS)
        evaluation_print_matrix(e, width);
    if (f->wrong > 0 && f->confusion)
        evaluation_print_confused(e);
    evaluation_print_mistakes(e);
}
