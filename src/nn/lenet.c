/* LeNet as in Dive into Deep Learning, "Training on Multiple GPUs". */
#include "base/status.h"
#include "lockstep/ops.h"
#include "nn/model.h"

enum {
    CONV1_WEIGHT,
    CONV1_BIAS,
    CONV2_WEIGHT,
    CONV2_BIAS,
    DENSE1_WEIGHT,
    DENSE1_BIAS,
    DENSE2_WEIGHT,
    DENSE2_BIAS,
    COUNT
};

static const double std = 0.01;

/* After a valid convolution with a kernel of `kernel` and pooling by two. */
static int64_t after_block(int64_t size, int64_t kernel)
{
    return (size - kernel + 1) / 2;
}

static lk_status layout(lk_model_input input, lk_parameter_spec *p)
{
    int64_t height = after_block(after_block(input.height, 3), 5), width = after_block(after_block(input.width, 3), 5);
    if (height < 1 || width < 1)
        LK_FAIL(LK_ERR_SHAPE, "lenet: images of %lldx%lld are too small; 16x16 is the least", (long long)input.height,
                (long long)input.width);
    p[CONV1_WEIGHT] = (lk_parameter_spec){"conv1.weight", LK_SHAPE(20, input.channels, 3, 3), std};
    p[CONV1_BIAS] = (lk_parameter_spec){"conv1.bias", LK_SHAPE(20), 0};
    p[CONV2_WEIGHT] = (lk_parameter_spec){"conv2.weight", LK_SHAPE(50, 20, 5, 5), std};
    p[CONV2_BIAS] = (lk_parameter_spec){"conv2.bias", LK_SHAPE(50), 0};
    p[DENSE1_WEIGHT] = (lk_parameter_spec){"dense1.weight", LK_SHAPE(50 * height * width, 128), std};
    p[DENSE1_BIAS] = (lk_parameter_spec){"dense1.bias", LK_SHAPE(128), 0};
    p[DENSE2_WEIGHT] = (lk_parameter_spec){"dense2.weight", LK_SHAPE(128, input.classes), std};
    p[DENSE2_BIAS] = (lk_parameter_spec){"dense2.bias", LK_SHAPE(input.classes), 0};
    return LK_OK;
}

static lk_tensor *forward(lk_tensor *const *p, lk_tensor *x)
{
    const lk_pool2d_opts pool = {.kernel = {2, 2}, .stride = {2, 2}};
    lk_tensor *h1 = lk_relu(lk_conv2d(x, p[CONV1_WEIGHT], p[CONV1_BIAS], NULL));
    h1 = lk_avg_pool2d(h1, &pool);
    lk_tensor *h2 = lk_relu(lk_conv2d(h1, p[CONV2_WEIGHT], p[CONV2_BIAS], NULL));
    h2 = lk_flatten(lk_avg_pool2d(h2, &pool));
    lk_tensor *h3 = lk_relu(lk_add(lk_matmul(h2, p[DENSE1_WEIGHT]), p[DENSE1_BIAS]));
    return lk_add(lk_matmul(h3, p[DENSE2_WEIGHT]), p[DENSE2_BIAS]);
}

const lk_model_table lk__model_lenet = {
    .name = "lenet",
    .recipe = {.batch_size = 256, .epochs = 10, .learning_rate = 0.2},
    .parameter_count = COUNT,
    .layout = layout,
    .forward = forward,
};
