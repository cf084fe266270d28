#include "cli/cli.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include "lockstep/compile.h"

#include <string.h>

typedef struct compile_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    const char *topology, *text, *out;
} compile_config;

#define AT(field) .offset = offsetof(compile_config, field)

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    {.name = "topology",
     .type = LK_OPTION_STRING,
     AT(topology),
     .value = "NAME",
     .help = "devices to compile for, as the plug-in names them: v5e:2x2 for four TPUs (required)"},
    {.name = "text",
     .type = LK_OPTION_STRING,
     AT(text),
     .value = "FILE",
     .help = "file to write the module to, StableHLO in MLIR's text (default: none)"},
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "file to write the executable to, in the plug-in's own form (default: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t compile_make_options(lk_option *table)
{
    static const char *const without[] = {"devices", "strategy", "storage",   "optimizer-state",
                                          "reduce",  "exchange", "bucket-mb", CLI_EVALUATION_OPTIONS,
                                          NULL};
    return cli_train_options(own_options, OWN_OPTION_COUNT, without, table);
}

static void compile_amend(void *config)
{
    cli_leave_out_records(&((compile_config *)config)->train);
}

static void compile_print(const lk_compile_result *r, const compile_config *config)
{
    printf("pass       %lld samples forward and backward, %lld operators, %zu bytes of StableHLO\n",
           (long long)r->samples, (long long)r->operators, r->text_bytes);
    printf("compiled   for one of %d devices of %s, in %.1f s\n", r->devices, config->topology, r->seconds);
    printf("memory     %.1f MB of arguments, %.1f MB of results, %.1f MB between them, %.1f MB of code\n",
           1e-6 * (double)r->arguments, 1e-6 * (double)(r->outputs - r->aliased), 1e-6 * (double)r->temporary,
           1e-6 * (double)r->code);
    if (r->flops >= 0 && r->bytes >= 0)
        printf("work       %.3g floating-point operations, %.1f MB read and written\n", r->flops, 1e-6 * r->bytes);
    if (r->predicted >= 0 && r->untimed > 0)
        printf(
            "predicted  %.3f ms without %lld part%s of the module whose time the plug-in's cost model does not know\n",
            1e3 * r->predicted, (long long)r->untimed, r->untimed == 1 ? "" : "s");
    else if (r->predicted >= 0)
        printf("predicted  %.3f ms, by the plug-in's cost model\n", 1e3 * r->predicted);
    else
        puts("predicted  no time: the plug-in gives none");
    if (config->out)
        printf("%s written: %zu bytes\n", config->out, r->out_bytes);
}

static int compile_run(int argc, char **argv)
{
    compile_config config = {0};
    lk_compile_result result;
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = compile_make_options(options);
    if (cli_parse_train(options, count, argc, argv, &config, compile_amend) != LK_OK)
        return cli_fail();
    if (!config.topology || !*config.topology)
        return cli_usage_error("--topology is missing: name the devices to compile for, as in v5e:2x2");
    if (config.text && config.out && strcmp(config.text, config.out) == 0)
        return cli_usage_error("--out %s: is the file of --text; name another", config.out);
    if ((config.text && cli_check_file("text", config.text) != 0) ||
        (config.out && cli_check_file("out", config.out) != 0))
        return 1;
    lk_log_set(cli_print_log_once, NULL, LK_LOG_INFO);
    lk_compile_opts opts = {
        .plugin = config.train.devices.pjrt, .topology = config.topology, .text = config.text, .out = config.out};
    if (lk_compile(&config.train, &opts, &result) != LK_OK)
        return cli_fail();
    compile_print(&result, &config);
    return 0;
}

const cli_command cmd_compile = {
    .name = "compile",
    .summary = "Compile a training for devices that are not there, such as TPUs",
    .details =
        "Lowers the training pass of one shard, forward and backward, to StableHLO, and lets the compiler in the\n"
        "plug-in of --pjrt compile it for the devices of --topology. Prints the memory that it needs, and what the\n"
        "compiler predicts. Nothing is trained, and no such device is needed.\n",
    .make_options = compile_make_options,
    .run = compile_run,
};
