#include "cli/cli.h"
#include "cli/text/scaling_text.h"

#include "lockstep/runs.h"

#include <stdio.h>
#include <sys/stat.h>

/* Prints when and why the processes of an elastic training changed, if `path` is a folder that says so. */
static void report_print_changes(const char *path)
{
    lk_run *run;
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return;
    if (lk_run_read(path, &run) != LK_OK) {
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
    if (lk_scaling_read(path, &report) != LK_OK)
        return cli_fail();
    cli_print_scaling_table(&report, stdout);
    report_print_changes(path);
    return 0;
}

static int report_compare(const char *one_path, const char *many_path)
{
    lk_scaling_report one, many;
    lk_status status = lk_scaling_read(one_path, &one);
    if (status == LK_OK)
        status = lk_scaling_read(many_path, &many);
    if (status == LK_OK)
        status = lk_scaling_compare(&one, &many);
    if (status != LK_OK)
        return cli_fail();
    cli_print_scaling_table(&many, stdout);
    return 0;
}

static int report_run(int argc, char **argv)
{
    int count;
    if (cli_parse(&cmd_report, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count == 0)
        return cli_usage_error("report: a folder is missing: name one that `lockstep train --log-dir` has written");
    if (count > 2)
        return cli_usage_error("unexpected argument '%s': at most two runs are compared", argv[2]);
    return count == 1 ? report_one(argv[0]) : report_compare(argv[0], argv[1]);
}

const cli_command cmd_report = {
    .name = "report",
    .summary = "Show the speed-up of several devices in a run, and predict that of more",
    .arguments = "LOGDIR | ONE_DEVICE_LOGDIR LOGDIR",
    .details =
        "LOGDIR is a folder that `lockstep train --log-dir` has written; its last run is reported. To report another\n"
        "one, name its file, such as scaling-2.json.\n"
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
        "device.\n",
    .run = report_run,
};
