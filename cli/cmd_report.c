#include "cli.h"
#include "scaling_text.h"

static int report_one(const char *path)
{
    lk_scaling_report report;
    if (lk_scaling_read(path, &report) != LK_OK)
        return cli_fail();
    cli_print_scaling_table(&report, stdout);
    return 0;
}

static int compare(const char *one_path, const char *many_path)
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

static int run(int argc, char **argv)
{
    int count;
    if (cli_parse(&cmd_report, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count == 0)
        return cli_usage_error("report of what? Name a folder that `lockstep train --log-dir` has written");
    if (count > 2)
        return cli_usage_error("unexpected argument '%s': at most two runs are compared", argv[2]);
    return count == 1 ? report_one(argv[0]) : compare(argv[0], argv[1]);
}

const cli_command cmd_report = {
    .name = "report",
    .summary = "Show what several devices gained in a run, and what more would give",
    .arguments = "LOGDIR | ONE_DEVICE_LOGDIR LOGDIR",
    .details =
        "LOGDIR is what `lockstep train --log-dir` has written; of several runs in it the last one is taken. A file\n"
        "scaling-2.json names one of them.\n"
        "\n"
        "Prints speed-up and efficiency; where a step's time went:\n"
        "  compute             operators, and sums over a device's own shards\n"
        "  exposed exchange    sums over several devices' shards, and waits for them: what backward did not hide\n"
        "  waiting for the slowest\n"
        "                      waits for devices that came later; the one that waited least is named\n"
        "  input wait          no work, because a batch was not there\n"
        "  other               no work for another reason, and what lies between operators\n"
        "and from the latency and bandwidth that the exchange was measured to have, a prediction for 2 to 1024\n"
        "devices. docs/scaling.md has the formulas.\n"
        "\n"
        "Of parameter-server it is a worker's step, of each worker and in the mean: computing, pulling and pushing,\n"
        "waiting because of --max-staleness, waiting for work or input; and a prediction for 2 to 1024 workers.\n"
        "\n"
        "With two runs of the same settings, the first on one device, the speed-up is what was measured of the two.\n"
        "With one it is estimated from the run's own computing time, unless its folder had such a run before.\n",
    .run = run,
};
