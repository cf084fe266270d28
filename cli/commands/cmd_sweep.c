#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/text/scaling_text.h"
#include "cli/text/study_table.h"
#include "cli/train_flags.h"

#include "lockstep/build.h"
#include "lockstep/callbacks.h"
#include "lockstep/record.h"
#include "lockstep/scaling.h"
#include "lockstep/study.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sweep_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    const char *over;
    int measure; /* enum lk_measure */
    int64_t seeds;
    const char *out;
    bool json;
    const char *log_dir;
    int asked_measure; /* not an option: the value of `measure`, for amend */
} sweep_config;

#define AT(field) .offset = offsetof(sweep_config, field)

/* In the order of lk_measure. */
static const char *const measures[] = {"throughput", "time-to-accuracy", NULL};

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "over",
     .type = LK_OPTION_STRING,
     AT(over),
     .value = "NAME=LIST",
     .help =
         "option below to vary, and its values: batch-size=8,16,32 or devices=1xcpu,2xcpu; values that contain commas "
         "are separated by ';' (required)"},
    {.name = "measure",
     .type = LK_OPTION_CHOICE,
     AT(measure),
     .default_text = "throughput",
     .choices = measures,
     .value = "WHAT",
     .help =
         "what to measure: throughput, in images per second without the first epoch; or time-to-accuracy, in seconds "
         "of training and evaluation until --target is passed"},
    {.name = "target",
     .type = LK_OPTION_DOUBLE,
     AT(train.stop.target_accuracy),
     .default_text = "-1",
     .least = 0,
     .greatest = 1,
     .value = "A",
     .help =
         "with --measure time-to-accuracy: validation accuracy to pass for --patience epochs in a row (default: the "
         "recipe's)"},
    {.name = "seeds",
     .type = LK_OPTION_INT64,
     AT(seeds),
     .default_text = "1",
     .minimum = 1,
     .maximum = LK_STUDY_MAX_SEEDS,
     .value = "N",
     .help = "number of runs per value, with seeds from --seed on"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "DIR",
     .help = "folder for study.json, study.svg and study.png (default: study-NAME, with the name of the option)"},
    {.name = "json", .type = LK_OPTION_FLAG, AT(json), .help = "print JSON on standard output instead of the table"},
    {.name = "log-dir",
     .type = LK_OPTION_STRING,
     AT(log_dir),
     .value = "DIR",
     .help =
         "folder for records of every run, as those of train, in DIR/NAME=VALUE,seed=N; writing them adds to the time "
         "to accuracy (default: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t sweep_make_options(lk_option *table)
{
    return cli_train_options(own_options, OWN_OPTION_COUNT, NULL, table);
}

/* Throughput needs few epochs and no evaluation. A recipe's printing and records are meant for a single run. */
static void sweep_amend(void *config)
{
    enum { EPOCHS = 3 };
    lk_train_config *train = &((sweep_config *)config)->train;
    cli_leave_out_records(train);
    if (((sweep_config *)config)->asked_measure == LK_MEASURE_THROUGHPUT) {
        train->epochs = EPOCHS;
        train->data.limit_val = 0;
        train->stop.target_accuracy = -1;
    }
}

/* Checks options against each other, as far as lk_study_new does not. */
static int sweep_check(const sweep_config *config)
{
    const lk_train_config *train = &config->train;
    if (!config->over || !*config->over)
        return cli_usage_error(
            "--over is missing: name an option of training and its values, as in batch-size=8,16,32");
    if (config->measure == LK_MEASURE_THROUGHPUT && train->stop.target_accuracy >= 0)
        return cli_usage_error("--target %g: must be with --measure time-to-accuracy", train->stop.target_accuracy);
    if (config->measure == LK_MEASURE_THROUGHPUT && train->stop.patience >= 0)
        return cli_usage_error("--patience %g: must be with --measure time-to-accuracy", train->stop.patience);
    if (train->stop.early_stop > 0 && train->data.limit_val == 0)
        return cli_usage_error("--early-stop %lld: needs an evaluation: --limit-val must be above 0",
                               (long long)train->stop.early_stop);
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
    bool unwritten; /* warned once that the JSON file cannot be written */
    int disturbed;  /* number of runs whose cores other processes took */
} sweep;

enum { FILE_PATH = PATH_MAX + 32, MAX_STUDIES = 1000000 };

/* Writes "DIR/study.json" for the first study, "DIR/study-2.json" for the second. */
static void sweep_file_path(const sweep *s, const char *extension, char path[FILE_PATH])
{
    if (s->number == 1)
        snprintf(path, FILE_PATH, "%s/study.%s", s->out, extension);
    else
        snprintf(path, FILE_PATH, "%s/study-%d.%s", s->out, s->number, extension);
}

/* Takes the first number that no study has, by making its JSON file. Returns the exit status. */
static int sweep_take_number(sweep *s)
{
    char path[FILE_PATH];
    for (s->number = 1; s->number <= MAX_STUDIES; s->number++) {
        sweep_file_path(s, "json", path);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) {
            close(file);
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return cli_cannot_write(path, errno);
}

/* Called before the first run, so that a folder that cannot be written is found early. */
static int sweep_make_files(sweep *s, const lk_study *study)
{
    char path[FILE_PATH];
    int length = s->config.out ? snprintf(s->out, sizeof s->out, "%s", s->config.out)
                               : snprintf(s->out, sizeof s->out, "study-%s", lk_study_setting(study));
    if (length >= (int)sizeof s->out)
        return cli_usage_error("--out: a path of more than %d bytes", PATH_MAX - 1);
    if (lk_make_directory(s->out) != LK_OK)
        return cli_fail();
    int status = sweep_take_number(s);
    sweep_file_path(s, "json", path);
    if (status == 0 && lk_study_write_json(study, path) != LK_OK)
        status = cli_fail();
    return status;
}

static lk_status sweep_write_files(const sweep *s, const lk_study *study)
{
    char json[FILE_PATH], svg[FILE_PATH], png[FILE_PATH];
    bool draws_png = lk_build_has("libcairo");
    sweep_file_path(s, "json", json);
    sweep_file_path(s, "svg", svg);
    sweep_file_path(s, "png", png);
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
    fputs(draws_png ? "\n" : "; without libcairo this build writes no PNG\n", stderr);
    return LK_OK;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void sweep_print_run(const lk_study *study, int index)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    fprintf(stderr, "run %d of %d: %s ", index + 1, lk_study_run_count(study), lk_study_setting(study));
    cli_print_clean(lk_study_row_at(study, run->value).value, stderr);
    fprintf(stderr, ", seed %lld", (long long)run->seed);
}

static lk_status sweep_add_log_dir(const sweep *s, const lk_study *study, int index, lk_trainer *trainer)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    char name[256], path[FILE_PATH + 256];
    snprintf(name, sizeof name, "%s=%s,seed=%lld", lk_study_setting(study), lk_study_row_at(study, run->value).value,
             (long long)run->seed);
    for (char *slash = name; (slash = strchr(slash, '/')) != NULL;)
        *slash = '_';
    snprintf(path, sizeof path, "%s/%s", s->config.log_dir, name);
    return lk_trainer_add(trainer, lk_callback_log_dir(path));
}

static lk_status sweep_end_training(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)result;
    sweep *s = self;
    const lk_scaling_report *scaling = lk_trainer_scaling(trainer);
    if (status != LK_OK || !scaling || !cli_is_disturbed(scaling))
        return LK_OK;
    cli_print_other_processes(scaling, "  ", stderr);
    s->disturbed++;
    return LK_OK;
}

/* Prints the plan of the first run only: the names of the others say what differs. */
static lk_status sweep_begin_run(void *user, const lk_study *study, int index, lk_trainer *trainer)
{
    sweep *s = user;
    const lk_train_config *config = &s->config.train;
    sweep_print_run(study, index);
    fputc('\n', stderr);
    if (index == 0 && strcmp(config->data.name, "auto") == 0 && !lk_trainer_plan(trainer)->fell_back &&
        strcmp(lk_trainer_plan(trainer)->data, "synthetic") == 0)
        cli_note_fallback();
    s->progress = (cli_progress){.announced = s->progress.announced};
    lk_status status = cli_progress_add(&s->progress, trainer);
    if (status == LK_OK)
        status = lk_trainer_add(trainer, lk_callback_scaling(NULL));
    if (status == LK_OK)
        status = lk_trainer_add(trainer, (lk_callback){.name = "cores", .train_end = sweep_end_training, .self = s});
    if (status == LK_OK && s->config.log_dir && *s->config.log_dir)
        status = sweep_add_log_dir(s, study, index, trainer);
    return status;
}

static void sweep_print_outcome(const lk_study *study, int index)
{
    const lk_study_run *run = lk_study_run_at(study, index);
    sweep_print_run(study, index);
    if (!run->ended) {
        fputs(": interrupted, does not count\n", stderr);
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

/* Writes the results after every run, in case this process ends early. */
static void sweep_end_run(void *user, const lk_study *study, int index)
{
    sweep *s = user;
    char path[FILE_PATH];
    sweep_print_outcome(study, index);
    sweep_file_path(s, "json", path);
    if (lk_study_write_json(study, path) != LK_OK && !s->unwritten) {
        cli_print_log(NULL, LK_LOG_WARNING, lk_error_message());
        s->unwritten = true;
    }
    lk_error_clear();
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int sweep_print_results(const sweep *s, const lk_study *study)
{
    int ended = 0, failed = 0, runs = lk_study_run_count(study);
    for (int i = 0; i < runs; i++) {
        const lk_study_run *run = lk_study_run_at(study, i);
        ended += run->ended;
        failed += run->ended && run->status != LK_OK;
    }
    FILE *stream = s->config.json ? stderr : stdout;
    cli_print_study(study, stream);
    if (ended < runs)
        fprintf(stream, "incomplete: %d of %d runs\n", ended, runs);
    fflush(stream);
    if (s->disturbed > 0)
        fprintf(stderr,
                "warning: in %d of %d run%s other processes, or more devices than cores, took more than a tenth of the "
                "cores' time: these figures are not those of an idle machine\n",
                s->disturbed, runs, runs == 1 ? "" : "s");
    if (!s->config.json)
        return failed > 0;
    char *json = lk_study_json(study);
    if (!json)
        return cli_fail();
    fputs(json, stdout);
    lk_free(json);
    return failed > 0;
}

static void sweep_interrupt(void *study)
{
    lk_study_interrupt(study);
}

static int sweep_train(sweep *s, lk_study *study)
{
    int status = sweep_make_files(s, study);
    if (status != 0)
        return status;
    cli_set_work(study);
    lk_status trained = lk_study_train(study);
    cli_set_work(NULL);
    int interrupted = trained == LK_OK ? 0 : cli_fail();
    lk_error_clear();
    status = sweep_print_results(s, study);
    if (sweep_write_files(s, study) != LK_OK)
        status = cli_fail();
    return interrupted ? interrupted : status;
}

/* Reads the measure first, because the defaults of other options depend on it. */
static lk_status sweep_parse(int argc, char **argv, sweep_config *config)
{
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = sweep_make_options(options);
    lk_status status = lk_options_defaults(options, count, config);
    if (status == LK_OK)
        status = lk_options_parse(options, count, argc, argv, config, NULL);
    config->asked_measure = config->measure;
    return status == LK_OK ? cli_parse_train(options, count, argc, argv, config, sweep_amend) : status;
}

static int sweep_run(int argc, char **argv)
{
    sweep s = {0};
    if (sweep_parse(argc, argv, &s.config) != LK_OK)
        return cli_fail();
    int status = cli_check_one_process(&s.config.train);
    if (status == 0)
        status = sweep_check(&s.config);
    if (status != 0)
        return status;
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    cli_catch_interrupts(sweep_interrupt);
    lk_study_opts opts = {.over = s.config.over,
                          .measure = (lk_measure)s.config.measure,
                          .seeds = s.config.seeds,
                          .begin = sweep_begin_run,
                          .end = sweep_end_run,
                          .user = &s};
    lk_study *study = lk_study_new(&s.config.train, &opts);
    status = study ? sweep_train(&s, study) : cli_fail();
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
        "Trains every value with the first seed, then every value with the second. Prints a table with the mean of\n"
        "each value's runs and, with more than one seed, its 95% interval by Student's t, which table and chart cut\n"
        "at 0. With time-to-accuracy, a run ends when it has passed the target; runs that do not pass it within\n"
        "--epochs do not count in the mean, and the table says how many there are.\n"
        "\n"
        "With throughput, a run trains three epochs and evaluates nothing, unless --epochs (at least 2) and\n"
        "--limit-val say otherwise.\n"
        "\n"
        "Without --devices all runs use the devices and shards of the value that gets most devices. If a value's\n"
        "batch is too small for that, a column of the table says so.\n"
        "\n"
        "Writes study.json after every run, and at the end the bar charts study.svg and study.png, to the folder\n"
        "--out. If an earlier study's files are there, the names are study-2.json and so on.\n"
        "\n"
        "A run that fails is reported, the others go on, and the exit status is 1. The first interrupt (control-C)\n"
        "ends the current run after its step, writes the results so far, marked incomplete, and gives exit status\n"
        "130; a second one ends at once.\n",
    .make_options = sweep_make_options,
    .run = sweep_run,
};
