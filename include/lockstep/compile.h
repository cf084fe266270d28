/* Compiles a training for devices that are not there, such as a TPU, with the compiler in a PJRT plug-in. */
#ifndef LOCKSTEP_COMPILE_H
#define LOCKSTEP_COMPILE_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_compile_opts {
    const char *plugin;   /* NULL: see lk_pjrt_default_path */
    const char *topology; /* as the plug-in names it: "v5e:2x2" */
    const char *text;     /* file for the module that is compiled, StableHLO in MLIR's text; NULL: none */
    const char *out;      /* file for the executable, in the plug-in's own form; NULL: none */
} lk_compile_opts;

typedef struct lk_compile_result {
    int64_t samples, operators; /* of the pass */
    size_t text_bytes;          /* of the module */
    /* Set by the plug-in's compiler. */
    int devices;    /* of the topology */
    double seconds; /* that compiling took */
    size_t out_bytes;
    int64_t code, arguments, outputs, aliased, temporary; /* bytes in a device's memory; outputs include aliased ones */
    double flops, bytes; /* operations, bytes read and written; below 0: the plug-in tells none */
    double predicted;    /* seconds, by the plug-in's cost model; below 0: it tells none */
    int64_t untimed;     /* parts of the module that `predicted` lacks, because the model knows no time for them */
} lk_compile_result;

/* Compiles the training pass of one full shard: forward and backward, from images to gradients. config->devices counts
 * only for the number of shards; config->servers, the evaluation and checkpoints of `config` are left out. The calling
 * process should not have used the plug-in, nor use it afterwards. Errors: those of lk_trainer_new; LK_ERR_NOT_FOUND,
 * LK_ERR_DEVICE, LK_ERR_UNSUPPORTED (see lk_pjrt_find; an operator that cannot be lowered), LK_ERR_BACKEND (the
 * plug-in's error), LK_ERR_IO. */
LK_API lk_status lk_compile(const lk_train_config *config, const lk_compile_opts *opts, lk_compile_result *result);

#ifdef __cplusplus
}
#endif

#endif
