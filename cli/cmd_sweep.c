#include "cli.h"
#include "interrupts.h"
#include "progress.h"
#include "study_table.h"
#include "train_flags.h"

#include "lockstep/build.h"
#include "lockstep/callbacks.h"
#include "lockstep/record.h"
#include "lockstep/study.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sweep_config {
    lk_train_config train; /* first: cli_parse_train wants it there */
    const char *over;
    int measure; /* enum lk_measure */
    int64_t seeds;
    const char *out;
    int asked_measure; /* no option: what `measure` will be, for amend */
} sweep_config;

#define AT(field) .offset = offsetof(sweep_config, field)

/* In the order of lk_measure. */
static const char *const measures[] = {"throughput", "time-to-accuracy", NULL};

/* clang-format off: a paragraph an option */
static const lk_option own_options[] = {
    {.name = "over",
     .type = LK_OPTION_STRING,
     AT(over),
     .value = "NAME=LIST",
     .help = "an option of training below and its values: batch-size=8,16,32, devices=1xcpu,2xcpu; joined by ';' where "
             "a value holds commas"},
    {.name = "measure",
     .type = LK_OPTION_CHOICE,
     AT(measure),
     .default_text = "throughput",
     .choices = measures,
     .value = "WHAT",
     .help = "images a second, the first epoch left out, or seconds of training and evaluation until --target is "
             "passed"},
    {.name = "target",
     .type = LK_OPTION_DOUBLE,
     AT(train.target_accuracy),
     .default_text = "-1",
     .least = 0,
     .greatest = 1,
     .value = "A",
     .help = "of time to accuracy: the validation accuracy to pass for --patience epochs in a row (unset: the "
             "recipe's)"},
    {.name = "seeds",
     .type = LK_OPTION_INT64,
     AT(seeds),
     .default_text = "1",
     .minimum = 1,
     .maximum = LK_STUDY_MAX_SEEDS,
     .value = "N",
     .help = "runs a value, with N seeds from --seed on"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "DIR",
     .help = "where study.json, study.svg and study.png go (unset: study-NAME, after what is swept)"},
    {.name = "json",
     .type = LK_OPTION_FLAG,
     AT(train.json),
     .help = "print the JSON on standard output, not the table"},
    {.name = "log-dir",
     .type = LK_OPTION_STRING,
     AT(train.log_dir),
     .value = "DIR",
     .help = "keep every run's records as train does, in DIR/NAME=VALUE,seed=N; writing them takes time to accuracy "
             "(unset: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t make_options(lk_option *table)
{
    return cli_train_options(own_options, OWN_OPTION_COUNT, NULL, table);
}

/* Throughput needs few epochs and no evaluation; a recipe's printing and records are those of a single run. */
static void amend(void *config)
{
    enum { EPOCHS = 3 };
    lk_train_config *train = &((sweep_config *)config)->train;
    cli_leave_out_records(train);
    if (((sweep_config *)config)->asked_measure == LK_MEASURE_THROUGHPUT) {
        train->epochs = EPOCHS;
        train->limit_val = 0;
        train->target_accuracy = -1;
    }
}

/* What is wrong beyond single values, and not for lk_study_new to see. */
static int check(const sweep_config *config)
{
    const lk_train_config *train = &config->train;
    if (!config->over || !*config->over)
        return cli_usage_error("--over is missing: an option of training and its values, as in batch-size=8,16,32");
    if (config->measure == LK_MEASURE_THROUGHPUT && train->target_accuracy >= 0)
        return cli_usage_error("--target %g: must be with --measure time-to-accuracy", train->target_accuracy);
    if (config->measure == LK_MEASURE_THROUGHPUT && train->patience >= 0)
        return cli_usage_error("--patience %g: must be with --measure time-to-accuracy", train->patience);
    if (train->early_stop > 0 && train->limit_val == 0)
        return cli_usage_error("--early-stop %lld: needs an evaluation: --limit-val must be above 0",
                               (long long)train->early_stop);
    if (config->out && !*config->out)
        return cli_usage_error("--out: must be the name of a folder");
    return 0;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

typedef struct sweep {
    sweep_config config;
    cli_progress progress;
    char out[PATH_MAX];
    int number;     /* of the study in `out` */
    bool unwritten; /* a warning about the JSON file has been printed */
} sweep;

enum { FILE_PATH = PATH_MAX + 32, MAX_STUDIES = 1000000 };

/* "DIR/study.json" of the first study, "DIR/study-2.json" of the second. */
static void file_path(const sweep *s, const char *extension, char path[FILE_PATH])
{
    if (s->number == 1)
        snprintf(path, FILE_PATH, "%s/study.%s", s->out, extension);
    else
        snprintf(path, FILE_PATH, "%s/study-%d.%s", s->out, s->number, extension);
}

static int cannot_write(const char *path, int error)
{
    fputs("lockstep: ", stderr);
    cli_print_clean(path, stderr);
    fprintf(stderr, ": cannot be written: %s\n", strerror(error));
    return 1;
}

/* The first number that no study has taken yet, taken by making its JSON file. Gives the exit status. */
static int take_number(sweep *s)
{
    char path[FILE_PATH];
    for (s->number = 1; s->number <= MAX_STUDIES; s->number++) {
        file_path(s, "json", path);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) {
            close(file);
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return cannot_write(path, errno);
}

/* Before the first run, so that a place that cannot be written shows in time. */
static int make_files(sweep *s, const lk_study *study)
{
    char path[FILE_PATH];
    int length = s->config.out ? snprintf(s->out, sizeof s->out, "%s", s->config.out)
                               : snprintf(s->out, sizeof s->out, "study-%s", lk_study_setting(study));
    if (length >= (int)sizeof s->out)
        return cli_usage_error("--out: a path of more than %d bytes", PATH_MAX - 1);
    if (lk_make_directory(s->out) != LK_OK)
        return cli_fail();
    int status = take_number(s);
    file_path(s, "json", path);
    if (status == 0 && lk_study_write_json(study, path) != LK_OK)
        status = cli_fail();
    return status;
}

static lk_status write_files(const sweep *s, const lk_study *study)
{
    char json[FILE_PATH], svg[FILE_PATH], png[FILE_PATH];
    bool draws_png = lk_build_has("libcairo");
    file_path(s, "json", json);
    file_path(s, "svg", svg);
    file_path(s, "png", png);
    lk_status status = lk_study_write_json(study, json);
    if (status == LK_OK)
        status = lk_study_write_chart(study, svg);
    if (status == LK_OK && draws_png)
        status = lk_study_write_chart(study, png);
    if (status != LK_OK)
        return status;
    cli_print_clean(json, stderr);
    fputs(draws_png ? ", " : " and ", stderr);
    cli_print_clean(svg, stderr);
    if (draws_png) {
        fputs(" and ", stderr);
        cli_print_clean(png, stderr);
    }
    fputs(draws_png ? "\n" : "; this build has no libcairo, which a PNG needs\n", stderr);
    return LK_OK;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void print_run(const lk_study *study, int index)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    fprintf(stderr, "run %d of %d: %s ", index + 1, lk_study_run_count(study), lk_study_setting(study));
    cli_print_clean(lk_study_row_at(study, run->value).value, stderr);
    fprintf(stderr, ", seed %lld", (long long)run->seed);
}

static lk_status add_log_dir(const sweep *s, const lk_study *study, int index, lk_trainer *trainer)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    char name[256], path[FILE_PATH + 256];
    snprintf(name, sizeof name, "%s=%s,seed=%lld", lk_study_setting(study), lk_study_row_at(study, run->value).value,
             (long long)run->seed);
    for (char *slash = name; (slash = strchr(slash, '/')) != NULL;)
        *slash = '_';
    snprintf(path, sizeof path, "%s/%s", s->config.train.log_dir, name);
    return lk_trainer_add(trainer, lk_callback_log_dir(path));
}

/* The plan of the first run is printed; of the others what differs is in their names. */
static lk_status begin(void *user, const lk_study *study, int index, lk_trainer *trainer)
{
    sweep *s = user;
    const lk_train_config *config = &s->config.train;
    print_run(study, index);
    fputc('\n', stderr);
    if (index == 0 && strcmp(config->data, "auto") == 0 && !lk_trainer_plan(trainer)->fell_back &&
        strcmp(lk_trainer_plan(trainer)->data, "synthetic") == 0)
        cli_note_fallback();
    s->progress = (cli_progress){.announced = s->progress.announced};
    lk_status status = cli_progress_add(&s->progress, trainer);
    if (status == LK_OK && config->early_stop > 0)
        status = lk_trainer_add(trainer, lk_callback_stop_on_plateau(config->early_stop, 0, NULL));
    if (status == LK_OK && config->log_dir && *config->log_dir)
        status = add_log_dir(s, study, index, trainer);
    return status;
}

static void print_outcome(const lk_study *study, int index)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    print_run(study, index);
    if (!run->ended) {
        fputs(": interrupted, it does not count\n", stderr);
    } else if (run->status != LK_OK) {
        fputs(": failed: ", stderr);
        cli_print_clean(run->message ? run->message : lk_status_name(run->status), stderr);
        fputc('\n', stderr);
    } else if (lk_study_get_measure(study) == LK_MEASURE_THROUGHPUT) {
        fprintf(stderr, ": %.0f images/s\n", run->result.images_per_second);
    } else if (run->reached) {
        fprintf(stderr, ": the target was passed after epoch %lld, %.2f s\n", (long long)run->epochs_to_accuracy,
                run->seconds_to_accuracy);
    } else {
        fprintf(stderr, ": the target was not reached by epoch %lld\n", (long long)run->result.epochs);
    }
}

/* What has been measured is kept as it comes, should this process end before its time. */
static void end(void *user, const lk_study *study, int index)
{
    sweep *s = user;
    char path[FILE_PATH];
    print_outcome(study, index);
    file_path(s, "json", path);
    if (lk_study_write_json(study, path) != LK_OK && !s->unwritten) {
        cli_print_log(NULL, LK_LOG_WARNING, lk_error_message());
        s->unwritten = true;
    }
    lk_error_clear();
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int print_results(const sweep *s, const lk_study *study)
{
    int ended = 0, failed = 0, runs = lk_study_run_count(study);
    for (int i = 0; i < runs; i++) {
        const lk_study_run *run = lk_study_run_at(study, i);
        ended += run->ended;
        failed += run->ended && run->status != LK_OK;
    }
    FILE *stream = s->config.train.json ? stderr : stdout;
    cli_print_study(study, stream);
    if (ended < runs)
        fprintf(stream, "incomplete: %d of %d runs\n", ended, runs);
    fflush(stream);
    if (!s->config.train.json)
        return failed > 0;
    char *json = lk_study_json(study);
    if (!json)
        return cli_fail();
    fputs(json, stdout);
    lk_free(json);
    return failed > 0;
}

static void interrupt(void *study)
{
    lk_study_interrupt(study);
}

static int train(sweep *s, lk_study *study)
{
    int status = make_files(s, study);
    if (status != 0)
        return status;
    cli_set_work(study);
    lk_status trained = lk_study_train(study);
    cli_set_work(NULL);
    int interrupted = trained == LK_OK ? 0 : cli_fail();
    lk_error_clear();
    status = print_results(s, study);
    if (write_files(s, study) != LK_OK)
        status = cli_fail();
    return interrupted ? interrupted : status;
}

/* The measure decides what the other flags start from, so it is read before them. */
static lk_status parse(int argc, char **argv, sweep_config *config)
{
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = make_options(options);
    lk_status status = lk_options_defaults(options, count, config);
    if (status == LK_OK)
        status = lk_options_parse(options, count, argc, argv, config, NULL);
    config->asked_measure = config->measure;
    return status == LK_OK ? cli_parse_train(options, count, argc, argv, config, amend) : status;
}

static int run(int argc, char **argv)
{
    sweep s = {0};
    if (parse(argc, argv, &s.config) != LK_OK)
        return cli_fail();
    int status = cli_check_one_process(&s.config.train);
    if (status == 0)
        status = check(&s.config);
    if (status != 0)
        return status;
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    cli_catch_interrupts(interrupt);
    lk_study_opts opts = {.over = s.config.over,
                          .measure = (lk_measure)s.config.measure,
                          .seeds = s.config.seeds,
                          .begin = begin,
                          .end = end,
                          .user = &s};
    lk_study *study = lk_study_new(&s.config.train, &opts);
    status = study ? train(&s, study) : cli_fail();
    lk_study_release(study);
    return status;
}

const cli_command cmd_sweep = {
    .name = "sweep",
    .summary = "Train with every value of a setting, and compare speed or time to accuracy",
    .details =
        "  lockstep sweep --over batch-size=8,16,32,64,128,256,512,700\n"
        "  lockstep sweep --over batch-size=32,64,128 --measure time-to-accuracy --target 0.85 --seeds 3\n"
        "  lockstep sweep --over devices=1xcpu,2xcpu\n"
        "\n"
        "Every value is trained with the first seed, then every value with the second. A table goes to standard\n"
        "output: the mean of a value's runs and, with more than one seed, its 95% interval by Student's t, which\n"
        "table and chart cut at 0. Time to accuracy ends a run where the target has been passed; runs that do not\n"
        "get there within --epochs are not part of the mean, and the table says how many there are.\n"
        "\n"
        "Throughput trains three epochs and evaluates nothing unless --epochs, of at least 2, and --limit-val say\n"
        "otherwise.\n"
        "\n"
        "Without --devices all runs have as many devices as the value that gets most, with as many shards; where a\n"
        "value's batch is too small for that the table has a column that says so.\n"
        "\n"
        "The folder --out gets study.json, written after every run, and the bar chart study.svg and study.png;\n"
        "where an earlier study's are there the names are study-2.json and so on.\n"
        "\n"
        "A run that fails is reported and ends nothing else; the exit status is then 1. The first interrupt\n"
        "(control-C) ends the run at hand after its step, writes what there is, marked incomplete, and gives exit\n"
        "status 130; a second ends at once.\n",
    .make_options = make_options,
    .run = run,
};
