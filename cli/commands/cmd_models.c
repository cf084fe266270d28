#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/nn.h"

/* Parameters are counted for the images that the tutorials of the reference models train on. */
static const lk_model_input gray28 = {.channels = 1, .height = 28, .width = 28, .classes = 10};

static int models_run(int argc, char **argv)
{
    if (cli_parse(&cmd_models, argc, argv, NULL, NULL) != LK_OK)
        return cli_fail();
    const char *name;
    char before[80];
    printf("%-12s %12s  %s\n", "model", "parameters", "about");
    for (int i = 0; (name = lk_model_name_at(i)); i++) {
        lk_model *model = lk_model_new(name, gray28);
        if (!model)
            return cli_fail();
        int64_t parameters = 0;
        for (int v = 0; v < lk_model_parameter_count(model); v++)
            parameters += lk_shape_count(lk_model_variable_shape(model, v));
        snprintf(before, sizeof before, "%-12s %12lld  ", name, (long long)parameters);
        cli_print_wrapped(before, lk_model_about_at(i), stdout);
        lk_model_release(model);
    }
    return 0;
}

const cli_command cmd_models = {
    .name = "models",
    .summary = "List the reference models",
    .details =
        "Parameters are counted for gray images of 28x28 in 10 classes. --model also takes the name of a model file,\n"
        "which has a '/' in it or ends in .lk. 'lockstep summary --model NAME' lists the layers of a model.\n",
    .run = models_run,
};
