/* Trained networks for other programs: safetensors, ONNX, TensorFlow's SavedModel, C (docs/export.md).
 *
 * Safetensors are the variables alone. Of the others, what is written takes images as f32 [N, C, H, W] in [0, 1],
 * prepares them as training did (centring, standardisation), and gives logits [N, classes] and, beside them,
 * probabilities: their softmax. It computes in f32, whatever training computed in. */
#ifndef LOCKSTEP_EXPORT_H
#define LOCKSTEP_EXPORT_H

#include "lockstep/checkpoint.h"
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_export_format {
    LK_EXPORT_SAFETENSORS, /* a file: parameters and buffers under their names */
    LK_EXPORT_ONNX,        /* a file: opset 13, for any runtime of ONNX */
    LK_EXPORT_SAVEDMODEL, /* a folder: saved_model.pb with the signature serving_default, for TensorFlow and its Serving
                           */
    LK_EXPORT_C, /* NAME.c and NAME.h, which need a C11 compiler and libm; above a million parameters and buffers
                  * also NAME.weights, which NAME_load reads */
    LK_EXPORT_FORMAT_COUNT
} lk_export_format;

/* "safetensors", "onnx", "savedmodel", "c"; NULL past the end. */
LK_API const char *lk_export_format_name(lk_export_format format);

typedef struct lk_export_network {
    const lk_model *model;
    const float *const *variables; /* [lk_model_variable_count]: row-major, in host memory */
    /* How images were prepared: (x - mean) where they were centred, divided by (deviation + 1e-6) where they were
     * standardised (lk_augment_opts). */
    bool center, standardize;
    const double *mean, *deviation; /* [channels], of pixels in [0, 1]; needed by what is set above */
    const char *const *class_names; /* [classes], UTF-8; NULL: there are none */
} lk_export_network;

/* What safetensors call the variables of a reference model: docs/checkpoints.md has the table. */
typedef enum lk_export_names {
    LK_EXPORT_NAMES_OWN,   /* as here */
    LK_EXPORT_NAMES_TORCH, /* as nn.Sequential, so that load_state_dict takes them; weights of Linear are [units, K] */
    LK_EXPORT_NAMES_BOOK   /* likewise of resnet18, as Dive into Deep Learning names its modules */
} lk_export_names;

typedef struct lk_export_opts {
    lk_export_names names; /* of safetensors; the other formats have their own */
    /* ONNX: weights go to PATH.data, beside it, which they do anyway where the file would have more than 2^31 - 1
     * bytes. */
    bool external_data;
} lk_export_opts;

/* Writes `network`. path: the file, of SavedModel the folder, of C the file that ends in ".c". Files are written beside
 * their place, brought to disk and, when all are there, renamed; they take the place of others, and of what a link
 * leads to. A folder must not be there yet. Everything is borrowed; opts NULL: the defaults. Waits for the disk.
 * Errors: LK_ERR_UNSUPPORTED (a layer of one's own that does not describe itself, a model without classes, a network
 * beyond what the format can hold, names that the model has not), LK_ERR_ARGUMENT (a path that the format cannot have;
 * but for safetensors, a value that is not finite), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_export(const lk_export_network *network, lk_export_format format, const char *path,
                           const lk_export_opts *opts);

/* The same of a checkpoint's network, written anywhere but into a checkpoint's folder. Errors also: those of
 * lk_checkpoint_model. */
LK_API lk_status lk_export_checkpoint(const lk_checkpoint *checkpoint, lk_export_format format, const char *path,
                                      const lk_export_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
