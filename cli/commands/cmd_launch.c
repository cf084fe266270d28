#include "cli/cli.h"
#include "cli/launch/launch_elastic.h"
#include "cli/launch/launch_hosts.h"
#include "cli/launch/launch_job.h"
#include "cli/train_flags.h"

#include "lockstep/checkpoint.h"
#include "lockstep/dist.h"
#include "lockstep/parameter_server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_RANKS = 4096, MAX_SERVERS = 256, LEAST_TIMEOUT = 2 }; /* seconds: ranks report every half second */

typedef struct launch_config {
    int64_t processes, workers, servers;
    const char *hosts, *interfaces;
    double stall_timeout;
    const char *log_dir;
    int64_t max_restarts;
    bool elastic;
    int64_t min_ranks;
    const char *hosts_file;
    struct timespec file_time; /* of hosts_file, before it was read */
    bool finds_interfaces;     /* the default of `interfaces` */
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
     .help = "number of processes to start, also written -n N (default: as many as --hosts has places for)"},
    {.name = "hosts",
     .type = LK_OPTION_STRING,
     AT(hosts),
     .value = "LIST",
     .help = "machines, and how many processes each takes: a:2,b:2 (default: all on this one)"},
    {.name = "interfaces",
     .type = LK_OPTION_STRING,
     AT(interfaces),
     .value = "LIST",
     .help = "with --hosts: network interfaces by which the machines reach each other, by name or network: "
             "eth1,10.1.0.0/16 (default: the networks of this machine that those of --hosts are in; if one is in none, "
             "or OMPI_MCA_… variables choose interfaces, Open MPI's choice)"},
    {.name = "workers",
     .type = LK_OPTION_INT64,
     AT(workers),
     .default_text = "0",
     .minimum = 1,
     .maximum = MAX_RANKS,
     .value = "N",
     .help = "with --strategy parameter-server: number of workers to start, on this machine and without MPI (default: "
             "start ranks of multi-worker)"},
    {.name = "servers",
     .type = LK_OPTION_INT64,
     AT(servers),
     .default_text = "0",
     .minimum = 1,
     .maximum = MAX_SERVERS,
     .value = "N",
     .help = "with --workers: number of parameter servers that the variables are spread over (default: 1)"},
    {.name = "stall-timeout",
     .type = LK_OPTION_DOUBLE,
     AT(stall_timeout),
     .default_text = "30",
     .least = 0,
     .greatest = 1e6,
     .value = "S",
     .help = "seconds that a process may make no progress before all are ended, at least 2; 0: forever"},
    {.name = "log-dir",
     .type = LK_OPTION_STRING,
     AT(log_dir),
     .value = "DIR",
     .help = "folder for files rank-i.log, which keep what rank i writes to standard error (default: none)"},
    {.name = "max-restarts",
     .type = LK_OPTION_INT64,
     AT(max_restarts),
     .default_text = "0",
     .minimum = 0,
     .maximum = 1000000,
     .value = "N",
     .help =
         "times that all processes are started again, from the last checkpoint in train's --checkpoint-dir, after one "
         "that the others need has died, failed or made no progress"},
    {.name = "elastic",
     .type = LK_OPTION_FLAG,
     AT(elastic),
     .help = "go on without ranks that are killed, make no progress or cannot be reached, from the last step that was "
             "finished (default: end)"},
    {.name = "min-ranks",
     .type = LK_OPTION_INT64,
     AT(min_ranks),
     .default_text = "1",
     .minimum = 1,
     .maximum = MAX_RANKS,
     .value = "N",
     .help = "with --elastic: number of ranks below which training ends"},
    {.name = "hosts-file",
     .type = LK_OPTION_STRING,
     AT(hosts_file),
     .value = "FILE",
     .help = "with --elastic: file with a machine on each line, as 'a slots=2' or 'a:2'; machines that are added to it "
             "join, and those removed from it leave (default: those of --hosts stay)"},
};

enum { OPTION_COUNT = sizeof options / sizeof options[0] };

/* --- the command line --------------------------------------------------------------------------------------------- */

/* Returns the position of the command after `--`, or -1 if there is none. */
static int launch_find_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i + 1 < argc ? i + 1 : -1;
    return -1;
}

static void launch_expand_n(int argc, char **argv)
{
    static char name[] = "--processes";
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "-n") == 0)
            argv[i] = name;
}

/* Parses the command that each process will run, so that its errors are printed once. */
static int launch_check_training(int argc, char **argv, lk_train_config *found)
{
    lk_option table[CLI_MAX_OPTIONS];
    size_t count = cmd_train.make_options(table);
    void *config = calloc(1, cmd_train.config_size);
    char **arguments = calloc((size_t)argc + 1, sizeof *arguments); /* parsing reorders argv */
    if (!config || !arguments) {
        free(config);
        free((void *)arguments);
        return cli_error("launch: %s", strerror(errno));
    }
    memcpy((void *)arguments, (void *)argv, (size_t)argc * sizeof *arguments);
    lk_status status = cli_parse_train(table, count, argc, arguments, config, NULL);
    *found = *(const lk_train_config *)config; /* its first member */
    free(config);
    free((void *)arguments);
    return status == LK_OK ? 0 : cli_fail();
}

/* Returns whether the user's Open MPI variables choose interfaces. */
static bool launch_mpi_has_interfaces(void)
{
    static const char *const variables[] = {"OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude",
                                            "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (getenv(variables[i]))
            return true;
    return false;
}

/* mpirun starts ranks on the machines of --hosts, or on several that Slurm has granted. */
static bool launch_needs_mpirun(const launch_config *config)
{
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    return config->workers == 0 && (config->hosts || config->hosts_file || (nodes && strtol(nodes, NULL, 10) > 1));
}

/* Returns the length of the list with ":1" behind machines that have no number of places. */
static long launch_hosts_length(const char *hosts)
{
    long machines = 1, numbers = 0;
    for (const char *at = hosts; *at; at++) {
        machines += *at == ',';
        numbers += *at == ':';
    }
    return (long)strlen(hosts) + 2 * (machines - numbers);
}

/* list: storage for the machines of --hosts-file. */
static int launch_check_elastic(launch_config *config, char list[CLI_HOSTS_LIST])
{
    char error[CLI_HOSTS_ERROR];
    struct stat about;
    if (!config->elastic && config->hosts_file)
        return cli_usage_error("launch: --hosts-file: must be with --elastic; --hosts names machines that stay");
    if (!config->elastic && config->min_ranks > 1)
        return cli_usage_error("launch: --min-ranks: must be with --elastic");
    if (config->elastic && config->workers > 0)
        return cli_usage_error("launch: --elastic: --workers may be lost without it");
    if (config->elastic && config->max_restarts > 0)
        return cli_usage_error("launch: --elastic: cannot be with --max-restarts; it starts ranks again as often as it "
                               "takes");
    if (config->hosts_file && (config->hosts || config->processes > 0))
        return cli_usage_error("launch: --hosts-file: cannot be with %s; it says how many processes there are",
                               config->hosts ? "--hosts" : "-n");
    if (config->elastic && !config->hosts && !config->hosts_file && launch_needs_mpirun(config))
        return cli_usage_error("launch: --elastic: the machines that Slurm has granted must be in a --hosts-file: "
                               "scontrol show hostnames prints them");
    if (config->elastic && config->hosts && launch_hosts_length(config->hosts) >= CLI_HOSTS_LIST)
        return cli_usage_error(
            "launch: --elastic: --hosts with the places of each machine has %ld bytes; must be at most %d",
            launch_hosts_length(config->hosts), CLI_HOSTS_LIST - 1);
    if (config->hosts_file && stat(config->hosts_file, &about) == 0)
        config->file_time = about.st_mtim;
    if (config->hosts_file && !cli_hosts_read(config->hosts_file, list, error))
        return cli_usage_error("launch: --hosts-file %s", error);
    if (config->hosts_file)
        config->hosts = list;
    return 0;
}

/* networks: storage for the default of --interfaces. */
static int launch_check_numbers(launch_config *config, char networks[CLI_NETWORKS])
{
    int places;
    if (cli_hosts_check(config->hosts, &places, networks) != 0)
        return 2;
    if (config->interfaces && !launch_needs_mpirun(config))
        return cli_usage_error("launch: --interfaces: must be with --hosts; processes of one machine use none");
    config->finds_interfaces = !config->interfaces && !launch_mpi_has_interfaces();
    if (config->finds_interfaces && *networks)
        config->interfaces = networks;
    if (config->stall_timeout > 0 && config->stall_timeout < LEAST_TIMEOUT)
        return cli_usage_error("launch: --stall-timeout %g: must be 0, or at least %d", config->stall_timeout,
                               LEAST_TIMEOUT);
    if (config->workers > 0 && (config->processes > 0 || config->hosts))
        return cli_usage_error("launch: --workers is for processes of --strategy parameter-server on this machine, %s "
                               "for those of multi-worker",
                               config->hosts ? "--hosts" : "-n");
    if (config->workers == 0 && config->servers > 0)
        return cli_usage_error("launch: --servers %lld: must be with --workers", (long long)config->servers);
    if (config->workers > 0 && config->servers == 0)
        config->servers = 1;
    if (config->workers > 0)
        config->processes = 1 + config->servers + config->workers;
    if (config->processes == 0)
        config->processes = places;
    if (config->processes == 0)
        return cli_usage_error("launch: how many processes? -n N, --hosts with places, or --workers N");
    if (config->processes > MAX_RANKS)
        return cli_usage_error("launch: %lld processes; at most %d can be started", (long long)config->processes,
                               MAX_RANKS);
    if (config->elastic && config->hosts && config->processes != places)
        return cli_usage_error("launch: --elastic: -n %lld: must be the %d places that --hosts has",
                               (long long)config->processes, places);
    if (config->min_ranks > config->processes)
        return cli_usage_error("launch: --min-ranks %lld: there %s %lld process%s", (long long)config->min_ranks,
                               config->processes == 1 ? "is" : "are", (long long)config->processes,
                               config->processes == 1 ? "" : "es");
    return 0;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static int launch_check_strategy(const launch_config *config, const lk_train_config *train)
{
    const char *strategy = train->devices.strategy;
    bool is_asynchronous = lk_strategy_kind_of(strategy) == LK_STRATEGY_ASYNCHRONOUS;
    bool is_local = strategy && lk_strategy_kind_of(strategy) == LK_STRATEGY_LOCAL;
    lk_train_role role;
    if (is_local && lk_train_role_of(train, &role) != LK_OK) /* there may be no such strategy */
        return cli_fail();
    if (config->workers > 0 && strategy && !is_asynchronous)
        return cli_usage_error("launch: --workers: is for --strategy parameter-server, not %s", strategy);
    if (config->workers == 0 && is_asynchronous)
        return cli_usage_error("launch: --strategy parameter-server is started by --workers N and --servers N");
    if (config->workers == 0 && is_local)
        return cli_usage_error("launch: --strategy %s trains in one process; multi-worker is for several", strategy);
    return 0;
}

/* Checks the options against each other, once for all ranks: all have the same options. */
static int launch_check_rank(const lk_train_config *train, const char *strategy)
{
    lk_train_role role;
    lk_train_config config = *train;
    config.devices.strategy = strategy;
    return lk_train_role_of(&config, &role) == LK_OK ? 0 : cli_fail();
}

/* Refuses options of train that would have no effect: launch brings ranks together by itself, and gives processes of
 * parameter-server their roles. */
static int launch_check_overridden(const launch_config *config, const lk_server_config *servers)
{
    const struct {
        const char *name;
        bool is_of_roles, is_given;
    } refused[] = {
        {"keys", false, servers->keys},
        {"listen", false, servers->listen},
        {"join-timeout", false, servers->join_timeout > 0},
        {"role", true, servers->role != LK_TRAIN_ROLE_AUTO},
        {"task-index", true, servers->task_index >= 0},
        {"servers", true, servers->count > 0},
        {"coordinator", true, servers->coordinator},
    };
    bool has_roles = config->workers > 0;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].is_given && refused[i].is_of_roles == has_roles)
            return cli_usage_error(
                "launch: train's --%s: %s", refused[i].name,
                has_roles
                    ? "is set by launch for each process; launch's own --workers and --servers say how many there are"
                    : "is for processes that a cluster description brings together; ranks of launch exchange "
                      "messages through shared memory or by MPI, unencrypted");
    return 0;
}

/* Processes on this machine may open as many files as this one. */
static lk_status launch_check_files(const launch_config *config)
{
    enum { OF_RANK = 12 }; /* most are pipes of its supervisor */
    if (launch_needs_mpirun(config))
        return LK_OK;
    return lk_check_open_files(
        "launch: a process",
        config->workers > 0 ? lk_parameter_server_files((int)config->servers, (int)config->workers) : OF_RANK);
}

/* Drops what the caller's own job may have left: its variables would lead to that job's files, and an ignored SIGCHLD
 * would hide that a process has ended. A cluster description would be wrong about processes to which launch gives
 * roles, and about ranks whose number changes. */
static void launch_forget_caller(const launch_config *config)
{
    unsetenv(LK_MEMORY_VARIABLE);
    unsetenv(LK_WORLD_VARIABLE);
    unsetenv(LK_SHARED_MEMORY_VARIABLE);
    unsetenv(LK_RANK_VARIABLE);
    unsetenv("PMIX_NAMESPACE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (config->workers > 0 || config->elastic)
        unsetenv("TF_CONFIG");
    signal(SIGCHLD, SIG_DFL);
}

static int launch_start(const launch_config *config, int argc, char **argv)
{
    lk_train_config train = {.devices.strategy = NULL};
    int status = launch_check_training(argc - 1, argv + 1, &train), n = 0;
    const char *strategy = config->workers > 0 ? "parameter-server" : "multi-worker";
    if (status == 0)
        status = launch_check_strategy(config, &train);
    if (status == 0 && config->workers == 0)
        status = launch_check_rank(&train, strategy);
    if (status == 0)
        status = launch_check_overridden(config, &train.servers);
    if (status != 0)
        return status;
    if (config->max_restarts > 0 && (!train.checkpoints.dir || !*train.checkpoints.dir))
        return cli_usage_error("launch: --max-restarts: must be with train's --checkpoint-dir");
    if (config->elastic && (train.devices.compress || train.devices.reduce))
        return cli_usage_error(
            "launch: --elastic: cannot be with train's %s, whose bits depend on the number of devices",
            train.devices.compress ? "--compress" : "--reduce nccl");
    if (config->elastic && train.devices.cluster)
        return cli_usage_error("launch: --elastic: cannot be with train's --cluster, which describes a fixed number of "
                               "processes");
    if (launch_check_files(config) != LK_OK)
        return cli_fail();
    if (strcmp(argv[argc - 1], "--") == 0)
        argc--; /* options that launch adds follow */
    char **command = calloc(2 * ((size_t)argc + 4), sizeof *command);
    if (!command)
        return cli_error("launch: %s", strerror(errno));
    command[n++] = argv[0];
    if (!train.devices.strategy) {
        command[n++] = (char *)(uintptr_t) "--strategy";
        command[n++] = (char *)(uintptr_t)strategy;
    }
    for (int i = 1; i < argc; i++)
        command[n++] = argv[i];
    char **again = command + argc + 4;
    for (int i = 0; i < n; i++)
        again[i] = command[i];
    if (train.checkpoints.dir && *train.checkpoints.dir)
        again[n] = (char *)(uintptr_t) "--resume";
    const cli_job_opts job = {.ranks = (int)config->processes,
                              .on_several_machines = launch_needs_mpirun(config),
                              .hosts = config->hosts,
                              .interfaces = config->interfaces,
                              .servers = config->workers > 0 ? (int)config->servers : 0,
                              .workers = (int)config->workers,
                              .restarts_servers = train.servers.snapshot_dir && *train.servers.snapshot_dir,
                              .stall_timeout = config->stall_timeout,
                              .log_dir = config->log_dir,
                              .command = command,
                              .max_restarts = (int)config->max_restarts,
                              .again = again};
    const cli_elastic_opts elastic = {.min_ranks = (int)config->min_ranks,
                                      .hosts_file = config->hosts_file,
                                      .file_time = config->file_time,
                                      .finds_interfaces = config->finds_interfaces};
    launch_forget_caller(config);
    status = config->elastic ? cli_elastic_run(&job, &elastic) : cli_job_run(&job);
    free((void *)command);
    return status;
}

static int launch_run(int argc, char **argv)
{
    launch_config config = {0};
    char networks[CLI_NETWORKS];
    static char list[CLI_HOSTS_LIST];
    int begin = launch_find_command(argc, argv);
    if (begin < 0)
        return cli_usage_error(
            "launch: '-- train' and its options are missing: lockstep launch -n 2 -- train --devices 1");
    launch_expand_n(begin - 1, argv);
    if (cli_parse(&cmd_launch, begin - 1, argv, &config, NULL) != LK_OK)
        return cli_fail();
    if (strcmp(argv[begin], "train") != 0)
        return cli_usage_error(
            "launch: '%s' cannot be run by several processes; 'train' can, and mpirun starts programs", argv[begin]);
    if (cli_asks_for_help(argc - begin - 1, argv + begin + 1)) {
        cli_print_help(cli_find_command(argv[begin]), stdout);
        return 0;
    }
    int status = launch_check_elastic(&config, list);
    if (status == 0)
        status = launch_check_numbers(&config, networks);
    return status == 0 ? launch_start(&config, argc - begin, argv + begin) : status;
}

const cli_command cmd_launch = {
    .name = "launch",
    .summary = "Train in several processes, on one machine or on many",
    .arguments = "-- train [OPTION…]",
    .details =
        "Starts N processes of `lockstep train --strategy multi-worker`, called ranks. On this machine they exchange\n"
        "messages through shared memory; on those of --hosts Open MPI's mpirun starts them and carries messages.\n"
        "--devices is per process; ranks on one machine take different cores as long as there are enough.\n"
        "\n"
        "Standard output is that of rank 0. Lines on standard error begin with the number of their rank: `[1] …`.\n"
        "On a terminal the last line is the progress bar of rank 0.\n"
        "\n"
        "If a rank dies, fails or makes no progress, all are ended, and the last line on standard error names the\n"
        "rank, its machine and what it was doing. Computing, reading, writing and downloading are progress, and so\n"
        "is waiting for a rank that does one of these. With --max-restarts all ranks are then started again and go\n"
        "on from their last checkpoint. With --elastic those that are left go on from the last finished step, which\n"
        "they keep in memory; so does a training of which one rank gets SIGTERM, or whose --hosts-file changes.\n"
        "\n"
        "With --workers it starts a chief, servers and workers of --strategy parameter-server instead, on this\n"
        "machine and without MPI, each worker on cores of its own. Training goes on without a worker that dies. A\n"
        "server that is killed or asked to end is started again if there is a --snapshot-dir; one that ends with an\n"
        "error is not.\n"
        "\n"
        "Options of train that say how its processes find each other are refused, because launch sets them. Only\n"
        "rank 0 or the chief writes a --trace.\n"
        "\n"
        "lockstep must be installed under the same path on every machine, and ssh must reach the machines without\n"
        "a password. Environment variables that begin with LOCKSTEP_ are passed on.\n"
        "\n"
        "The first interrupt (control-C) ends training after the current step, a second one ends it at once. The\n"
        "exit status is 130 after an interrupt, that of the rank if a rank failed, and 1 if a rank was killed, made\n"
        "no progress or could not be started.\n",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = launch_run,
};
