/* Exports trained networks for other programs: safetensors, ONNX, TensorFlow's SavedModel, C (docs/export.md).
 *
 *     lk_checkpoint_open_model("runs/a", LK_CHECKPOINT_BEST, &checkpoint);
 *     lk_export_checkpoint(checkpoint, LK_EXPORT_ONNX, "net.onnx", NULL);
 *
 * Safetensors hold the variables only. The other formats hold a network that takes images as f32 [N, C, H, W] in [0,
 * 1], prepares them as training did (centering, standardization), and gives logits [N, classes] and probabilities,
 * their softmax. It computes in f32, whatever training used. */
#ifndef LOCKSTEP_EXPORT_H
#define LOCKSTEP_EXPORT_H

#include "lockstep/checkpoint.h"
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_export_format {
    LK_EXPORT_SAFETENSORS, /* a file: parameters and buffers under their names */
    LK_EXPORT_ONNX,        /* a file: opset 13, for any ONNX runtime */
    LK_EXPORT_SAVEDMODEL,  /* a folder: saved_model.pb with one signature, for TensorFlow and its Serving */
    LK_EXPORT_C,           /* NAME.c and NAME.h, which need a C11 compiler and libm; above a million parameters and
                            * buffers also NAME.weights, which NAME_load reads */
    LK_EXPORT_FORMAT_COUNT
} lk_export_format;

/* "safetensors", "onnx", "savedmodel", "c"; NULL past the end. */
LK_API const char *lk_export_format_name(lk_export_format format);

typedef struct lk_export_network {
    const lk_model *model;
    const float *const *variables; /* [lk_model_variable_count]: row-major, in host memory */
    /* As in training (lk_augment_opts): center subtracts mean, standardize divides by deviation + 1e-6. */
    bool center, standardize;
    const double *mean, *deviation; /* [channels], of pixels in [0, 1]; needed by center and standardize; else NULL */
    const char *const *class_names; /* [classes], UTF-8; NULL: none */
} lk_export_network;

/* The names of a reference model's variables in safetensors; docs/checkpoints.md lists them. */
typedef enum lk_export_names {
    LK_EXPORT_NAMES_OWN,   /* those of this library */
    LK_EXPORT_NAMES_TORCH, /* those of nn.Sequential, for load_state_dict; weights of Linear are [units, K] */
    LK_EXPORT_NAMES_BOOK   /* for resnet18, those of the modules in Dive into Deep Learning */
} lk_export_names;

typedef struct lk_export_opts {
    lk_export_names names; /* for safetensors; the other formats have names of their own */
    /* For ONNX: write weights to PATH.data, next to PATH, as is always done if the file would exceed 2^31 - 1 bytes. */
    bool external_data;
    /* For SavedModel: the signature's name, an identifier; NULL: "serving_default". channels_last: images are f32 [N,
     * H, W, C], as in Keras. */
    const char *signature;
    bool channels_last;
} lk_export_opts;

/* Writes `network` to `path`: a file; for SavedModel a folder, which must not exist; for C the file that ends in ".c".
 * Files are written under other names, and renamed when all are on disk; they replace existing files, or the targets of
 * links. Everything is borrowed; opts NULL: defaults. Waits for the disk. Errors: LK_ERR_UNSUPPORTED (a layer without
 * lk_layer_table.describe, a model without classes, a network too large for the format, names that the model does not
 * have), LK_ERR_ARGUMENT (a path or a signature that the format cannot have), LK_ERR_NUMERIC (except for safetensors: a
 * value that is not finite), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_export(const lk_export_network *network, lk_export_format format, const char *path,
                           const lk_export_opts *opts);

/* Writes the network of a checkpoint, anywhere but into a checkpoint's folder. Errors also: those of
 * lk_checkpoint_model. */
LK_API lk_status lk_export_checkpoint(const lk_checkpoint *checkpoint, lk_export_format format, const char *path,
                                      const lk_export_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
