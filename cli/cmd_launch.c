#include "cli.h"
#include "launch_hosts.h"
#include "launch_job.h"
#include "train_flags.h"

#include "lockstep/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 4096, LEAST_TIMEOUT = 2 }; /* s: reports come every half second */

typedef struct launch_config {
    int64_t processes;
    const char *hosts;
    double stall_timeout;
    const char *log_dir;
} launch_config;

#define AT(field) .offset = offsetof(launch_config, field)

static const lk_option options[] = {
    {.name = "processes",
     .type = LK_OPTION_INT64,
     AT(processes),
     .default_text = "0",
     .minimum = 1,
     .maximum = MAX_RANKS,
     .value = "N",
     .help = "how many to start; -n N is the same (unset: as many as --hosts has places)"},
    {.name = "hosts",
     .type = LK_OPTION_STRING,
     AT(hosts),
     .value = "LIST",
     .help = "machines and how many processes each takes: a:2,b:2 (unset: all on this one)"},
    {.name = "stall-timeout",
     .type = LK_OPTION_DOUBLE,
     AT(stall_timeout),
     .default_text = "30",
     .least = 0,
     .greatest = 1e6,
     .value = "S",
     .help = "seconds, at least 2, that a process may be without progress before all are ended; 0: for ever"},
    {.name = "log-dir",
     .type = LK_OPTION_STRING,
     AT(log_dir),
     .value = "DIR",
     .help = "keep what rank i writes to standard error in DIR/rank-i.log (unset: nowhere)"},
};

enum { OPTION_COUNT = sizeof options / sizeof options[0] };

/* --- the command line --------------------------------------------------------------------------------------------- */

/* Where the command to start begins; -1: there is none. */
static int find_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i + 1 < argc ? i + 1 : -1;
    return -1;
}

static void name_n(int argc, char **argv)
{
    static char name[] = "--processes";
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "-n") == 0)
            argv[i] = name;
}

/* Of the command that each process is going to run: what is wrong with it is said once. */
static int check_training(int argc, char **argv, const char **strategy)
{
    lk_option table[CLI_MAX_OPTIONS];
    size_t count = cmd_train.make_options(table);
    void *config = calloc(1, cmd_train.config_size);
    char **arguments = calloc((size_t)argc + 1, sizeof *arguments); /* parsing moves them */
    if (!config || !arguments) {
        free(config);
        free((void *)arguments);
        return cli_usage_error("launch: %s", strerror(errno));
    }
    memcpy((void *)arguments, (void *)argv, (size_t)argc * sizeof *arguments);
    lk_status status = cli_parse_train(table, count, argc, arguments, config, NULL);
    *strategy = ((const lk_train_config *)config)->strategy;
    free(config);
    free((void *)arguments);
    return status == LK_OK ? 0 : cli_fail();
}

static int check_numbers(launch_config *config)
{
    int places;
    if (cli_hosts_check(config->hosts, &places) != 0)
        return 2;
    if (config->stall_timeout > 0 && config->stall_timeout < LEAST_TIMEOUT)
        return cli_usage_error("launch: --stall-timeout %g: must be 0, or at least %d", config->stall_timeout,
                               LEAST_TIMEOUT);
    if (config->processes == 0)
        config->processes = places;
    if (config->processes == 0)
        return cli_usage_error("launch: how many processes? -n N, or --hosts with places");
    if (config->processes > MAX_RANKS)
        return cli_usage_error("launch: --hosts %s: %d places; at most %d processes can be started", config->hosts,
                               places, MAX_RANKS);
    return 0;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static int start(const launch_config *config, int argc, char **argv)
{
    static const char *const by_default[] = {"--strategy", "multi-worker"};
    const char *strategy = NULL;
    int status = check_training(argc - 1, argv + 1, &strategy);
    if (status != 0)
        return status;
    if (strategy && strcmp(strategy, "multi-worker") != 0)
        return cli_usage_error("launch: --strategy %s trains in one process; multi-worker is for several", strategy);
    char **command = calloc((size_t)argc + 3, sizeof *command);
    if (!command)
        return cli_usage_error("launch: %s", strerror(errno));
    int n = 0;
    command[n++] = argv[0];
    for (int i = 0; i < 2 && !strategy; i++)
        command[n++] = (char *)(uintptr_t)by_default[i];
    for (int i = 1; i < argc; i++)
        command[n++] = argv[i];
    status = cli_job_run(&(cli_job_opts){.ranks = (int)config->processes,
                                         .hosts = config->hosts,
                                         .stall_timeout = config->stall_timeout,
                                         .log_dir = config->log_dir,
                                         .command = command});
    free((void *)command);
    return status;
}

static int run(int argc, char **argv)
{
    launch_config config = {0};
    int begin = find_command(argc, argv);
    if (begin < 0)
        return cli_usage_error(
            "launch: '-- train' and its options are missing: lockstep launch -n 2 -- train --devices 1");
    name_n(begin - 1, argv);
    if (cli_parse(&cmd_launch, begin - 1, argv, &config, NULL) != LK_OK)
        return cli_fail();
    if (strcmp(argv[begin], "train") != 0)
        return cli_usage_error("launch: '%s' cannot be run by several processes; 'train' can", argv[begin]);
    int status = check_numbers(&config);
    return status == 0 ? start(&config, argc - begin, argv + begin) : status;
}

const cli_command cmd_launch = {
    .name = "launch",
    .summary = "Train in several processes, on one machine or on many",
    .arguments = "-- train [OPTION…]",
    .details =
        "Starts N processes of `lockstep train --strategy multi-worker`, its ranks, by Open MPI's mpirun. --devices "
        "is\n"
        "per process; ranks on one machine take different cores while there are any.\n"
        "\n"
        "Standard output is rank 0's. What ranks write to standard error has their number in front: `[1] …`.\n"
        "\n"
        "Where a rank dies, ends by an error or does not go on, all are ended, and the last line on standard error "
        "says\n"
        "which one it was, where, and what it was at. Computing, reading, writing and downloading are progress, and "
        "so\n"
        "is waiting for another rank that does one of these.\n"
        "\n"
        "The command has to be there under the same path on every machine, and machines are reached by ssh without a\n"
        "password. Variables that begin with LOCKSTEP_ are handed on.\n"
        "\n"
        "The first interrupt (control-C) ends training after the step at hand, a second one at once. Exit status: 130\n"
        "after an interrupt; of a rank that ended by an error, its own.\n",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
