#include "cli/cli.h"
#include "cli/text/progress.h"
#include "cli/text/repeat_text.h"
#include "cli/text/runs_text.h"
#include "cli/text/scaling_text.h"

#include "lockstep/log.h"
#include "lockstep/runs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct report_config {
    const char *html;
} report_config;

/* clang-format off: one paragraph per option */
static const lk_option options[] = {
    {.name = "html",
     .type = LK_OPTION_STRING,
     .offset = offsetof(report_config, html),
     .value = "FILE",
     .help = "write a page about the run, or about up to 8 runs compared, instead of printing (default: none)"},
};
/* clang-format on */

/* Prints when and why the processes of an elastic training changed, if the run's records say so. */
static void report_print_changes(const char *records)
{
    lk_run *run;
    if (lk_run_read(records, &run) != LK_OK) {
        lk_error_clear(); /* the report does without */
        return;
    }
    for (int64_t i = 0; i < run->n_changes; i++) {
        const lk_run_change *c = &run->changes[i];
        printf("%sfrom %lld to %lld process%s after step %lld: ", i == 0 ? "\n" : "", (long long)c->before,
               (long long)c->after, c->after == 1 ? "" : "es", (long long)c->step);
        cli_print_clean(c->reason, stdout);
        putchar('\n');
    }
    lk_run_release(run);
}

static int report_one(const char *path)
{
    lk_scaling_report report;
    char records[PATH_MAX];
    if (lk_scaling_read_run(path, &report, records) != LK_OK)
        return cli_fail();
    cli_print_scaling_table(&report, stdout);
    report_print_changes(records);
    return 0;
}

static int report_compare(const char *one_path, const char *many_path)
{
    lk_scaling_report one, many;
    lk_status status = lk_scaling_read(one_path, &one);
    if (status == LK_OK)
        status = lk_scaling_read(many_path, &many);
    if (status != LK_OK)
        return cli_fail();
    if (lk_scaling_compare(&one, &many) != LK_OK)
        return cli_usage_error("%s; --html FILE compares any runs", lk_error_message());
    cli_print_scaling_table(&many, stdout);
    return 0;
}

static int report_write_page(char **paths, int count, const char *html)
{
    lk_page_run runs[LK_PAGE_RUNS] = {{0}};
    lk_run *read[LK_PAGE_RUNS] = {NULL};
    char names[LK_PAGE_RUNS][4200], *commands[LK_PAGE_RUNS] = {NULL};
    lk_status status = LK_OK;
    for (int i = 0; i < count && status == LK_OK; i++) {
        status = lk_run_read(paths[i], &read[i]);
        if (status != LK_OK)
            break;
        cli_run_name(read[i]->path, names[i], sizeof names[i]);
        commands[i] = cli_repeat_command(read[i]);
        runs[i] = (lk_page_run){read[i], names[i], commands[i]};
    }
    if (status == LK_OK)
        status = lk_page_write(runs, count, html);
    for (int i = 0; i < count; i++) {
        lk_run_release(read[i]);
        free(commands[i]);
    }
    return status == LK_OK ? 0 : cli_fail();
}

static int report_run(int argc, char **argv)
{
    report_config config;
    int count;
    if (cli_parse(&cmd_report, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count == 0)
        return cli_usage_error("report: a folder is missing: name one that `lockstep train --log-dir` has written");
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    if (config.html && *config.html) {
        if (count > LK_PAGE_RUNS)
            return cli_usage_error("unexpected argument '%s': a page compares at most %d runs", argv[LK_PAGE_RUNS],
                                   LK_PAGE_RUNS);
        return report_write_page(argv, count, config.html);
    }
    if (count > 2)
        return cli_usage_error("unexpected argument '%s': at most two runs are compared without --html", argv[2]);
    return count == 1 ? report_one(argv[0]) : report_compare(argv[0], argv[1]);
}

const cli_command cmd_report = {
    .name = "report",
    .summary = "Write a page about runs, or show the speed-up of several devices",
    .arguments = "LOGDIR | ONE_DEVICE_LOGDIR LOGDIR | --html FILE LOGDIR...",
    .details =
        "LOGDIR is a folder that `lockstep train --log-dir` has written. Its last run that has a scaling report is\n"
        "reported, and with --html its last run. To report another one, name its file, such as scaling-2.json, or\n"
        "epochs-2.jsonl for --html.\n"
        "\n"
        "Prints speed-up and efficiency, and where the time of a step went:\n"
        "  compute             operators, and sums over a device's own shards\n"
        "  exposed exchange    sums over several devices, and waits for them, that the backward pass did not hide\n"
        "  waiting for the slowest\n"
        "                      waits for slower devices; the device that waited least is named\n"
        "  input wait          idle because a batch was not ready\n"
        "  other               idle for another reason, and time between operators\n"
        "From the measured latency and bandwidth of the exchange it predicts the speed-up of 2 to 1024 devices.\n"
        "docs/scaling.md has the formulas.\n"
        "\n"
        "For an elastic training it prints when and why the number of processes changed.\n"
        "\n"
        "For parameter-server it prints the step of each worker, and their mean: computing, pulling and pushing,\n"
        "waiting because of --max-staleness, waiting for work or input; and it predicts 2 to 1024 workers.\n"
        "\n"
        "Given two runs with the same settings, the first on one device, it prints the measured speed-up. Given one\n"
        "run, it estimates the speed-up from its computing time, unless the folder has an earlier run on one\n"
        "device.\n"
        "\n"
        "--html writes a page that needs no other file and no network: results, curves by step and by epoch,\n"
        "settings, where the time went, digests, and the command that repeats the run. It shows a step over time if\n"
        "the folder has trace.json (`lockstep train --trace`), and what the network confuses if it has the files of\n"
        "`lockstep evaluate --out`. Given several runs, it compares them.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .config_size = sizeof(report_config),
    .run = report_run,
};
