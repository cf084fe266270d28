#include "cli.h"

#include "lockstep/nn.h"

/* The images that the sources of the reference models train on: counts are given for these. */
static const lk_model_input grey28 = {.channels = 1, .height = 28, .width = 28, .classes = 10};

static int run(int argc, char **argv)
{
    if (cli_parse(&cmd_models, argc, argv, NULL, NULL) != LK_OK)
        return cli_fail();
    const char *name;
    printf("%-12s %12s  %s\n", "model", "parameters", "about");
    for (int i = 0; (name = lk_model_name_at(i)); i++) {
        lk_model *model = lk_model_new(name, grey28);
        if (!model)
            return cli_fail();
        int64_t parameters = 0;
        for (int v = 0; v < lk_model_parameter_count(model); v++)
            parameters += lk_shape_count(lk_model_variable_shape(model, v));
        printf("%-12s %12lld  %s\n", name, (long long)parameters, lk_model_about_at(i));
        lk_model_release(model);
    }
    return 0;
}

const cli_command cmd_models = {
    .name = "models",
    .summary = "List the reference models",
    .details =
        "Parameters are counted for grey images of 28x28 in 10 classes. Wherever a command takes --model, the\n"
        "name of a model file (with a '/' or the ending .lk) is as good; 'lockstep summary --model NAME' lists a\n"
        "model's layers.\n",
    .run = run,
};
