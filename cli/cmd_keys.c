#include "cli.h"

#include "lockstep/parameter_server.h"

static int run(int argc, char **argv)
{
    int n;
    if (cli_parse(&cmd_keys, argc, argv, NULL, &n) != LK_OK)
        return cli_fail();
    if (n < 2)
        return cli_usage_error(
            "keys: a folder and at least one name are needed, as in: lockstep keys cluster-keys chief "
            "ps-0 worker-0");
    for (int i = 1; i < n; i++) {
        if (lk_make_keys(argv[0], argv[i]) != LK_OK)
            return cli_fail();
        printf("%s/%s.key\n", argv[0], argv[i]);
    }
    return 0;
}

const cli_command cmd_keys = {
    .name = "keys",
    .summary = "Make keys for the processes of a parameter-server training",
    .arguments = "DIR NAME…",
    .details =
        "For each NAME a pair of keys is made: DIR/NAME.key holds both and is readable by its owner alone, and\n"
        "DIR/allowed gets a line with the public one. The chief's has to be named chief. A process is started\n"
        "with --keys DIR/NAME.key, and needs that file and `allowed` beside it; only those that `allowed` lists\n"
        "get through to each other. Connections are encrypted by CurveZMQ.\n"
        "\n"
        "Prints the files made.\n",
    .run = run,
};
