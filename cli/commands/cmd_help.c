#include "cli/cli.h"

static int help_run(int argc, char **argv)
{
    int count;
    if (cli_parse(&cmd_help, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count > 1)
        return cli_usage_error("unexpected argument '%s': help describes one command at a time", argv[1]);
    if (count == 0) {
        cli_print_overview(stdout);
        return 0;
    }
    const cli_command *command = cli_find_command(argv[0]);
    if (!command)
        return 2;
    cli_print_help(command, stdout);
    return 0;
}

const cli_command cmd_help = {
    .name = "help",
    .summary = "List the commands, or describe one",
    .arguments = "[COMMAND]",
    .run = help_run,
};
