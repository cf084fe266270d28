// A program in C++ that builds a network of its own and trains it for a few steps on synthetic images.
#include <lockstep/lockstep.h>

#include <cstdio>

static int fail()
{
    std::fprintf(stderr, "outside: %s\n", lk_error_message());
    return 1;
}

int main()
{
    lk_train_config config;
    lk_train_result result;
    if (lk_train_defaults(nullptr, &config) != LK_OK)
        return fail();
    config.data.name = "synthetic";
    config.data.limit_train = 96;
    config.data.limit_val = 0;
    config.batch_size = 32;
    config.epochs = 1;
    config.devices.spec = "2xcpu";
    lk_layer *net = LK_SEQUENTIAL(lk_layer_conv2d(4, 5, nullptr), lk_layer_activation(LK_RELU),
                                  lk_layer_global_avg_pool(), lk_layer_dense(10, nullptr));
    lk_trainer *trainer = lk_trainer_new_with(&config, lk_model_build("small", net, {1, 28, 28, 10}));
    if (!trainer || lk_trainer_fit(trainer, &result) != LK_OK)
        return fail();
    lk_trainer_release(trainer);

    lk_device *device = lk_device_open("cpu:0");
    lk_scope_begin();
    lk_tensor *ones = lk_ones(device, LK_F32, LK_SHAPE(2, 3)), *scalar = lk_full(device, LK_F32, LK_SCALAR, 2);
    lk_tensor *product = lk_mul(ones, scalar);
    float values[6] = {0};
    if (!product || lk_tensor_read(product, values, sizeof values) != LK_OK || values[5] != 2)
        return fail();
    lk_scope_end();
    lk_device_release(device);

    const lk_field fields[] = {LK_INT("steps", result.steps), LK_TEXT("digest", result.digest), LK_NONE("nothing")};
    std::printf("%s %lld\n", fields[1].text, static_cast<long long>(fields[0].integer));
    return 0;
}
