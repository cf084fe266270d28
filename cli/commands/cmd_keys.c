#include "cli/cli.h"

#include "lockstep/parameter_server.h"

static int keys_run(int argc, char **argv)
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
    .summary = "Make keys for encrypted connections between the processes of a training",
    .arguments = "DIR NAME…",
    .details =
        "Makes a pair of keys for each NAME. DIR/NAME.key holds both keys, and only its owner may read it;\n"
        "DIR/allowed gets a line with the public key. The chief's key must be named chief; with --strategy\n"
        "multi-worker, worker i's key must be named worker-i. Start each process with --keys DIR/NAME.key; it\n"
        "needs that file and the file `allowed` next to it. Only processes whose keys `allowed` lists can connect\n"
        "to each other. CurveZMQ encrypts the connections.\n"
        "\n"
        "Prints the files it has made.\n",
    .run = keys_run,
};
