/* A program outside of the project, which knows an installed library: trains LeNet for a few steps on made images and
 * prints the digest of what it has trained. */
#include <lockstep/lockstep.h>

#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "outside: %s\n", lk_error_message());
    return 1;
}

int main(int argc, char **argv)
{
    lk_train_config config;
    lk_train_result result;
    if (lk_train_defaults(NULL, &config) != LK_OK)
        return fail();
    config.model = "lenet";
    config.data = "synthetic";
    config.limit_train = 96;
    config.limit_val = 0;
    config.batch_size = 32;
    config.epochs = 1;
    config.devices = "2xcpu";
    config.shards = 4;
    config.strategy = argc > 1 ? argv[1] : NULL;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer || lk_trainer_fit(trainer, &result) != LK_OK)
        return fail();
    printf("%s\n", result.digest);
    lk_trainer_release(trainer);
    return lk_leave_processes() == LK_OK ? 0 : fail();
}
