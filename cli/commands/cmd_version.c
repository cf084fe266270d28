#include "cli/cli.h"

#include "lockstep/build.h"

static int version_run(int argc, char **argv)
{
    if (cli_parse(&cmd_version, argc, argv, NULL, NULL) != LK_OK)
        return cli_fail();
    const char *revision = lk_build_revision();
    printf("lockstep %s (%s%s%s)\n", lk_build_version(), revision, *revision ? "; " : "", lk_build_compiler());
    return 0;
}

const cli_command cmd_version = {
    .name = "version",
    .summary = "Print version, revision and compiler",
    .run = version_run,
};
