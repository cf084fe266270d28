#include "cli/cli.h"

#include "lockstep/device.h"

static int devices_run(int argc, char **argv)
{
    if (cli_parse(&cmd_devices, argc, argv, NULL, NULL) != LK_OK)
        return cli_fail();
    const char *kind;
    for (int k = 0; (kind = lk_device_kind_at(k)); k++) {
        for (int i = 0; i < lk_device_available(kind); i++) {
            char text[128], name[32];
            if (lk_device_describe(kind, i, text, sizeof text) != LK_OK)
                return cli_fail();
            snprintf(name, sizeof name, "%s:%d", kind, i);
            printf("%-8s %s\n", name, text);
        }
    }
    return 0;
}

const cli_command cmd_devices = {
    .name = "devices",
    .summary = "List the devices that this process may use",
    .details =
        "A device of kind cpu is one core. A device of kind ref is also a core, with the plain C kernels that tests\n"
        "compare with. Options take devices as 2xcpu, cpu:0,cpu:1 or 2xcpu:0 (two devices on one core), or as a\n"
        "number: that many GPUs if one can be used, else cores.\n",
    .run = devices_run,
};
