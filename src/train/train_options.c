#include "lockstep/train.h"

#define AT(field) .offset = offsetof(lk_train_config, field)

enum { MAX_SHARDS = 65536, MAX_BATCH = 1 << 24 };

const lk_option lk_train_options[] = {
    {.name = "model", .type = LK_OPTION_STRING, AT(model), .default_text = "lenet", .value = "NAME", .recorded = true,
     .help = "network to train: lenet"},
    {.name = "data", .type = LK_OPTION_STRING, AT(data), .default_text = "fashion-mnist", .value = "NAME",
     .recorded = true,
     .help = "data set: fashion-mnist, mnist, synthetic, or auto (fashion-mnist, else synthetic)"},
    {.name = "data-dir", .type = LK_OPTION_STRING, AT(data_dir), .value = "DIR",
     .help = "where NAME/FILE or NAME/FILE.gz is looked for before $LOCKSTEP_DATA and ~/.cache/lockstep"},
    {.name = "devices", .type = LK_OPTION_STRING, AT(devices), .value = "SPEC",
     .help = "devices: 2xcpu, cpu:0,cpu:1, or a number (unset: the cores there are, at most one a shard)"},
    {.name = "strategy", .type = LK_OPTION_STRING, AT(strategy), .value = "NAME",
     .help = "one-device or mirrored (unset: one-device for one device, else mirrored)"},
    {.name = "shards", .type = LK_OPTION_INT64, AT(shards), .default_text = "0", .minimum = 1, .maximum = MAX_SHARDS,
     .value = "V", .recorded = true,
     .help = "logical shards a batch is cut into (unset: the largest power of two up to 8 with 32 samples a shard, "
             "raised to the number of devices)"},
    {.name = "epochs", .type = LK_OPTION_INT64, AT(epochs), .default_text = "0", .minimum = 1, .maximum = 1000000,
     .value = "N", .recorded = true, .help = "passes over the training set (unset: the model's recipe, lenet 10)"},
    {.name = "batch-size", .type = LK_OPTION_INT64, AT(batch_size), .default_text = "0", .minimum = 1,
     .maximum = MAX_BATCH, .value = "N", .recorded = true,
     .help = "samples a step, over all devices together (unset: the model's recipe, lenet 256)"},
    {.name = "base-lr", .type = LK_OPTION_DOUBLE, AT(base_lr), .default_text = "0", .least = 1e-12, .greatest = 1e6,
     .value = "RATE", .recorded = true, .help = "learning rate (unset: the model's recipe, lenet 0.2)"},
    {.name = "seed", .type = LK_OPTION_INT64, AT(seed), .default_text = "0", .minimum = 0, .maximum = INT64_MAX,
     .value = "N", .recorded = true, .help = "seed of initial weights and of the samples' order"},
    {.name = "limit-train", .type = LK_OPTION_INT64, AT(limit_train), .default_text = "-1", .minimum = 1,
     .maximum = INT64_MAX, .value = "N", .recorded = true, .help = "train on the file's first N samples (unset: all)"},
    {.name = "limit-val", .type = LK_OPTION_INT64, AT(limit_val), .default_text = "-1", .minimum = 0,
     .maximum = INT64_MAX, .value = "N", .help = "evaluate on the file's first N samples; 0: no evaluation (unset: all)"},
    {.name = "workers", .type = LK_OPTION_INT64, AT(workers), .default_text = "1", .minimum = 0, .maximum = 64,
     .value = "N", .help = "threads that prepare batches ahead; 0: prepared between steps"},
    {.name = "json", .type = LK_OPTION_FLAG, AT(json), .help = "print one JSON object a line on standard output"},
    {.name = "ledger", .type = LK_OPTION_FLAG, AT(ledger),
     .help = "print after every epoch how often samples were used"},
};

_Static_assert(sizeof lk_train_options / sizeof lk_train_options[0] == LK_TRAIN_OPTION_COUNT, "the header's count");
