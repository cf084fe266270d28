/* Recipes: the settings of the tutorials that this project reproduces, and of a training that is to be fast. Every
 * recipe sets model, which stands first, and batch-size, epochs, base-lr, optimizer and schedule, which are the
 * defaults of that model too. */
#include "train/plan/recipes.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const lk_recipe recipes[] = {
    {"lenet", "Dive into Deep Learning's multi-GPU LeNet on Fashion-MNIST",
     SETTINGS("model=lenet", "data=fashion-mnist", "optimizer=sgd", "base-lr=0.2", "batch-size=256", "epochs=10",
              "schedule=constant")},
    {"keras-mnist", "TensorFlow's distributed training with Keras: a small CNN on MNIST, Adam, a rate in three steps",
     SETTINGS("model=keras-cnn", "data=mnist", "optimizer=adam", "base-lr=0.001", "batch-size=64", "epochs=12",
              "schedule=step", "lr-steps=3:0.1,7:0.01")},
    {"custom-training",
     "TensorFlow's distributed custom training on Fashion-MNIST, Adam; its settings with keras-mnist's CNN",
     SETTINGS("model=keras-cnn", "data=fashion-mnist", "optimizer=adam", "base-lr=0.001", "batch-size=64", "epochs=10",
              "schedule=constant")},
    {"resnet18", "Dive into Deep Learning's concise multi-GPU ResNet-18 on Fashion-MNIST",
     SETTINGS("model=resnet18", "data=fashion-mnist", "optimizer=sgd", "base-lr=0.1", "batch-size=256", "epochs=10",
              "schedule=constant")},
    {"fashion-mnist-wrn",
     "NVIDIA's WideResNet-16-10 lab: 10,000 augmented images of Fashion-MNIST, until 0.85 is passed",
     SETTINGS("model=wrn-16-10", "data=fashion-mnist", "limit-train=10000", "optimizer=sgd", "base-lr=0.01",
              "wd=0.000005", "batch-size=32", "val-batch-size=32", "epochs=40", "schedule=step",
              "lr-steps=15:0.1,25:0.01,35:0.001", "augment=shift=0.2,flip", "normalize=standard",
              "target-accuracy=0.85", "log-dir=./logs", "throughput=true", "total-time=true")},
    {"fashion-mnist-fast",
     "Fashion-MNIST in minutes on two cores: a small residual network in bf16, augmented images, a cosine",
     SETTINGS("model=fast-cnn", "data=fashion-mnist", "optimizer=sgd", "base-lr=0.1", "momentum=0.9", "nesterov=true",
              "wd=0.0005", "batch-size=128", "shards=2", "epochs=10", "schedule=cosine", "warmup-epochs=2",
              "label-smoothing=0.1", "augment=flip,crop=1", "normalize=standard", "dtype=auto")},
};

enum { RECIPE_COUNT = sizeof recipes / sizeof recipes[0] };

/* The settings of models that no recipe trains. */
static const char *const unnamed_model[] = {"optimizer=sgd", "base-lr=0.1",       "batch-size=128",
                                            "epochs=10",     "schedule=constant", NULL};

const lk_recipe *lk_recipe_at(int index)
{
    return index >= 0 && index < RECIPE_COUNT ? &recipes[index] : NULL;
}

static lk_status recipe_find(const char *name, const lk_recipe **recipe)
{
    for (int i = 0; i < RECIPE_COUNT; i++) {
        *recipe = &recipes[i];
        if (strcmp(recipes[i].name, name) == 0)
            return LK_OK;
    }
    const char *near = lk_nearest_word(name, recipes, RECIPE_COUNT, sizeof recipes[0]);
    if (near)
        LK_FAIL(LK_ERR_ARGUMENT, "--recipe %s: there is none of that name; did you mean %s?", name, near);
    char names[256];
    size_t used = 0;
    for (int i = 0; i < RECIPE_COUNT && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", recipes[i].name);
    LK_FAIL(LK_ERR_ARGUMENT, "--recipe %s: there is none of that name: %s", name, names);
}

static lk_status recipe_apply(const char *const *settings, lk_train_config *config)
{
    for (; *settings; settings++) {
        char name[64];
        size_t length = strcspn(*settings, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, *settings);
        LK_TRY(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, config, name, *settings + length + 1));
    }
    return LK_OK;
}

lk_status lk_train_defaults(const char *recipe, lk_train_config *config)
{
    *config = (lk_train_config){0};
    LK_TRY(lk_options_defaults(lk_train_options, LK_TRAIN_OPTION_COUNT, config));
    if (!recipe)
        return LK_OK;
    const lk_recipe *found;
    LK_TRY(recipe_find(recipe, &found));
    config->recipe = found->name;
    LK_TRY(recipe_apply(found->settings, config));
    /* The plan fills these in: NULL tells it that they were not asked for. */
    config->optimizer.schedule = config->optimizer.lr_steps = NULL;
    return LK_OK;
}

/* The settings of the first recipe that trains `model`. */
static const char *const *recipe_settings_of_model(const char *model)
{
    for (int i = 0; i < RECIPE_COUNT; i++)
        if (strcmp(recipes[i].settings[0] + strlen("model="), model) == 0)
            return recipes[i].settings;
    return unnamed_model;
}

lk_status lk__recipe_of(const lk_train_config *config, lk_train_config *settings)
{
    const lk_recipe *recipe;
    *settings = (lk_train_config){0};
    if (!config->recipe)
        return recipe_apply(recipe_settings_of_model(config->model), settings);
    LK_TRY(recipe_find(config->recipe, &recipe));
    return recipe_apply(recipe->settings, settings);
}
