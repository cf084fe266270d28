#include "soak_model.h"

#include <stdarg.h>
#include <string.h>

typedef struct model_writer {
    soak_random *random;
    char *text;
    size_t size, used;
    int height, width, depth, convolutions;
    bool has_batch_norm;
} model_writer;

static void model_write(model_writer *writer, const char *format, ...) LK_PRINTF(2, 3);

static void model_write(model_writer *writer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = writer->used < writer->size
                     ? vsnprintf(writer->text + writer->used, writer->size - writer->used, format, arguments)
                     : 0;
    va_end(arguments);
    writer->used += (size_t)length;
}

static int model_int(model_writer *writer, int low, int high)
{
    return (int)soak_random_int(writer->random, low, high);
}

void soak_model_image(const soak_case *drawn, int *height, int *width)
{
    const char *resize = soak_settings_value(&drawn->settings, "resize");
    const char *data = soak_settings_value(&drawn->settings, "data");
    *height = *width = 28;
    if (resize)
        sscanf(resize, "%dx%d", height, width);
    else if (data && strcmp(data, "../inputs/cifar") == 0)
        *height = *width = 32;
    else if (data && strncmp(data, "../inputs/", 10) == 0)
        *height = *width = 24;
}

static const char *model_init(model_writer *writer)
{
    static const char *const words[] = {"",
                                        "",
                                        " init=he_normal",
                                        " init=torch_uniform",
                                        " init=normal(0.05)",
                                        " init=glorot_uniform bias_init=torch_uniform",
                                        " bias_init=ones",
                                        NULL};
    return soak_random_word(writer->random, words);
}

static void model_write_activation(model_writer *writer)
{
    static const char *const words[] = {"relu", "relu", "leaky_relu", "elu",      "sigmoid",
                                        "tanh", "silu", "gelu",       "softplus", NULL};
    model_write(writer, "%s\n", soak_random_word(writer->random, words));
}

/* A normalization of one sample, for any number of channels or for `filters`. */
static void model_write_sample_norm(model_writer *writer, int filters)
{
    if (model_int(writer, 0, 1))
        model_write(writer, "layer_norm\n");
    else
        model_write(writer, "group_norm %d epsilon=1e-3\n", filters % 2 == 0 ? 2 : 1);
}

/* A convolution with or without what usually follows it; one in four has other sizes along W than along H. */
static void model_write_conv(model_writer *writer)
{
    int smaller = writer->height < writer->width ? writer->height : writer->width;
    int kernel = model_int(writer, 1, smaller < 5 ? smaller : 5), stride = model_int(writer, 1, 2);
    int padding = model_int(writer, 0, kernel / 2), filters = model_int(writer, 1, 17);
    int wide = kernel, wide_stride = stride, wide_padding = padding;
    bool is_named = model_int(writer, 0, 3) == 0;
    if (model_int(writer, 0, 3) == 0) {
        wide = model_int(writer, 1, smaller < 5 ? smaller : 5);
        wide_stride = model_int(writer, 1, 2);
        wide_padding = model_int(writer, 0, wide / 2);
    }
    writer->convolutions++;
    if (is_named)
        model_write(writer, "c%d: ", writer->convolutions);
    model_write(writer, "conv2d %d kernel=%dx%d stride=%dx%d padding=%dx%d%s%s\n", filters, kernel, wide, stride,
                wide_stride, padding, wide_padding, model_int(writer, 0, 3) == 0 ? " bias=no" : "", model_init(writer));
    writer->height = (writer->height + 2 * padding - kernel) / stride + 1;
    writer->width = (writer->width + 2 * wide_padding - wide) / wide_stride + 1;
    if (writer->has_batch_norm && model_int(writer, 0, 2) > 0)
        model_write(writer, model_int(writer, 0, 3) == 0 ? "batch_norm epsilon=1e-3 momentum=0.2\n" : "batch_norm\n");
    else if (model_int(writer, 0, 3) == 0)
        model_write_sample_norm(writer, filters);
    model_write_activation(writer);
}

/* Channels behind those that there are, as in a DenseNet. */
static void model_write_concat(model_writer *writer)
{
    model_write(writer, "d%d: concat\n  conv2d %d kernel=3 padding=same%s\n  ", ++writer->convolutions,
                model_int(writer, 1, 9), model_init(writer));
    model_write_activation(writer);
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "with\n  conv2d %d kernel=1x3 padding=same\n", model_int(writer, 1, 9));
    model_write(writer, "end\n");
}

static void model_write_pool(model_writer *writer)
{
    int smaller = writer->height < writer->width ? writer->height : writer->width;
    if (smaller < 4)
        return;
    int kernel = model_int(writer, 2, 3), stride = model_int(writer, 1, 3), padding = model_int(writer, 0, 1);
    model_write(writer, "%s %d stride=%d padding=%d\n", model_int(writer, 0, 1) ? "max_pool" : "avg_pool", kernel,
                stride, padding);
    writer->height = (writer->height + 2 * padding - kernel) / stride + 1;
    writer->width = (writer->width + 2 * padding - kernel) / stride + 1;
}

/* Both sides must have one shape, so there is a convolution on the shortcut, or the block changes no shape. */
static void model_write_residual(model_writer *writer)
{
    int filters = model_int(writer, 2, 12), stride = model_int(writer, 1, 2);
    model_write(writer, "r%d: residual\n  conv2d %d kernel=3 padding=same stride=%d\n", ++writer->convolutions, filters,
                stride);
    if (writer->has_batch_norm)
        model_write(writer, "  batch_norm\n");
    model_write(writer, "  relu\n  conv2d %d kernel=3 padding=same%s\n", filters, model_init(writer));
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "  conv2d %d kernel=3 padding=same groups=%d dilation=%d\n", filters, filters,
                    model_int(writer, 1, 2));
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "  multiply\n  by\n    global_avg_pool\n    dense %d\n    sigmoid\n  end\n", filters);
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "  scale 0.%d\n", model_int(writer, 1, 9));
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "  drop_path 0.%d\n", model_int(writer, 1, 4));
    model_write(writer, "shortcut\n  conv2d %d kernel=1 stride=%d\nend\n", filters, stride);
    writer->height = (writer->height - 1) / stride + 1;
    writer->width = (writer->width - 1) / stride + 1;
    model_write_activation(writer);
}

static void model_write_repeat(model_writer *writer)
{
    int filters = model_int(writer, 2, 8);
    model_write(writer, "p%d: repeat %d\n  conv2d %d kernel=3 padding=same%s\n", ++writer->convolutions,
                model_int(writer, 1, 3), filters, model_init(writer));
    if (writer->has_batch_norm)
        model_write(writer, "  batch_norm\n");
    model_write(writer, "  relu\nend\n");
}

static void model_write_end(model_writer *writer)
{
    static const char *const flat[] = {"flatten", "flatten", "global_avg_pool", "global_max_pool", NULL};
    model_write(writer, "%s\n", soak_random_word(writer->random, flat));
    for (int i = model_int(writer, 0, 2); i > 0; i--) {
        model_write(writer, "dense %d%s%s\n", model_int(writer, 3, 70), model_int(writer, 0, 4) ? "" : " bias=no",
                    model_init(writer));
        model_write_activation(writer);
    }
    if (model_int(writer, 0, 2) == 0)
        model_write(writer, "dropout 0.%d\n", model_int(writer, 1, 6));
    model_write(writer, "dense classes%s\n", model_init(writer));
}

void soak_model_draw(soak_random *random, soak_case *drawn)
{
    model_writer writer = {
        .random = random, .text = drawn->model, .size = sizeof drawn->model, .has_batch_norm = drawn->has_batch_norm};
    soak_model_image(drawn, &writer.height, &writer.width);
    if (drawn->has_batch_norm && model_int(&writer, 0, 4) == 0)
        model_write(&writer, "batch_norm\n");
    for (int i = model_int(&writer, 0, 4); i > 0 && writer.height > 2 && writer.width > 2; i--) {
        int kind = model_int(&writer, 0, 10);
        if (kind < 5)
            model_write_conv(&writer);
        else if (kind < 7)
            model_write_pool(&writer);
        else if (kind < 8)
            model_write_residual(&writer);
        else if (kind < 9)
            model_write_repeat(&writer);
        else if (kind < 10)
            model_write_concat(&writer);
        else
            model_write(&writer, "dropout 0.%d\n", model_int(&writer, 1, 5));
    }
    model_write_end(&writer);
}
