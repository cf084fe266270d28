#include "cli/cli.h"

#include "lockstep/device.h"
#include "lockstep/ops.h"

static void ops_print_row(int op, const char *kind)
{
    printf("%-36s %-6s", lk_op_name(op), kind);
    for (int dtype = 0; dtype < LK_DTYPE_COUNT; dtype++) {
        const char *implementation = lk_op_is_view(op) ? "view" : lk_op_implementation(op, kind, (lk_dtype)dtype);
        printf(" %-7s", implementation ? implementation : "-");
    }
    printf(" %s\n", lk_op_is_differentiable(op) ? "yes" : "-");
}

static int ops_run(int argc, char **argv)
{
    if (cli_parse(&cmd_ops, argc, argv, NULL, NULL) != LK_OK)
        return cli_fail();
    printf("%-36s %-6s", "operator", "device");
    for (int dtype = 0; dtype < LK_DTYPE_COUNT; dtype++)
        printf(" %-7s", lk_dtype_name((lk_dtype)dtype));
    printf(" gradient\n");
    const char *kind;
    for (int op = 0; lk_op_name(op); op++)
        for (int k = 0; (kind = lk_device_kind_at(k)); k++)
            ops_print_row(op, kind);
    return 0;
}

const cli_command cmd_ops = {
    .name = "ops",
    .summary = "List operators, and what runs them on each kind of device for each dtype",
    .run = ops_run,
};
