/* A program outside of the project that uses an installed library. It trains LeNet for a few steps on synthetic images
 * and prints the digest of the trained variables. With a folder as the second argument it writes a checkpoint there,
 * and prints the checkpoint's accuracy on as many images. */
#include <lockstep/lockstep.h>

#include <stdio.h>

enum { IMAGES = 96 };

static int fail(void)
{
    fprintf(stderr, "outside: %s\n", lk_error_message());
    return 1;
}

static int evaluate(lk_trainer *trainer, const char *folder)
{
    lk_checkpoint *checkpoint;
    lk_dataset *images;
    lk_evaluation evaluation;
    if (lk_trainer_save(trainer, folder) != LK_OK ||
        lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &checkpoint) != LK_OK ||
        lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = IMAGES}, &images) != LK_OK)
        return fail();
    lk_predictor *predictor = lk_predictor_new(checkpoint, NULL);
    if (!predictor || lk_evaluate(predictor, images, 0, &evaluation) != LK_OK)
        return fail();
    printf("%.4f\n", lk_mean_value(evaluation.accuracy));
    lk_evaluation_free(&evaluation);
    lk_predictor_release(predictor);
    lk_dataset_release(images);
    lk_checkpoint_release(checkpoint);
    return 0;
}

int main(int argc, char **argv)
{
    lk_train_config config;
    lk_train_result result;
    if (lk_train_defaults(NULL, &config) != LK_OK)
        return fail();
    config.model = "lenet";
    config.data.name = "synthetic";
    config.data.limit_train = IMAGES;
    config.data.limit_val = 0;
    config.batch_size = 32;
    config.epochs = 1;
    config.devices.spec = "2xcpu";
    config.devices.shards = 4;
    config.devices.strategy = argc > 1 && *argv[1] ? argv[1] : NULL;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer || lk_trainer_fit(trainer, &result) != LK_OK)
        return fail();
    printf("%s\n", result.digest);
    if (argc > 2 && evaluate(trainer, argv[2]) != 0)
        return 1;
    lk_trainer_release(trainer);
    return lk_leave_processes() == LK_OK ? 0 : fail();
}
