/* Words of the table of options in train_options.c. */
#pragma once

#include <stddef.h>

/* The words of each choice, in the order of its enum in lockstep/train_config.h, dist.h or parameter_server.h. */
static const char *const roles[] = {"auto", "chief", "worker", "ps", NULL};
static const char *const data_on[] = {"auto", "host", "device", NULL};
static const char *const batch_norm_modes[] = {"group", "shard", "sync", NULL};
static const char *const normalize_modes[] = {"none", "center", "standard", NULL};
static const char *const nan_guards[] = {"stop", "skip", "off", NULL};
static const char *const fuse_modes[] = {"on", "off", NULL};
static const char *const graph_modes[] = {"on", "off", NULL};
static const char *const precisions[] = {"f32", "bf16", "auto", NULL};
static const char *const optimizer_states[] = {"mirrored", "sharded", NULL};
static const char *const reductions[] = {"tree", "nccl", NULL};
static const char *const exchanges[] = {"auto", "flat", "tree", NULL};
static const char *const compressions[] = {"none", "bf16", NULL};
static const char *const best_metrics[] = {"auto",       "val-accuracy", "val-loss", "train-accuracy",
                                           "train-loss", "none",         NULL};
static const char *const executors[] = {"program", "eager", NULL};

/* The groups of help, in the order of the rows that are first in them. */
static const char NETWORK[] = "Network and recipe", DATA[] = "Data", DEVICES[] = "Devices and processes",
                  KERNELS[] = "Precision and kernels", OPTIMIZER[] = "Optimizer and rate",
                  CHECKS[] = "Stopping and checks", RECORDS[] = "Records and output", CHECKPOINTS[] = "Checkpoints",
                  SERVERS[] = "Parameter server";
