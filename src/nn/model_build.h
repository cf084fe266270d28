/* Building a model: from a tree of layers to shapes and variables. */
#pragma once

#include "nn/layer.h"
#include "nn/model.h"

lk_status lk__model_check_input(const char *name, lk_model_input input);

/* Returns a model whose layers have names but no shapes yet; NULL on failure. Takes `root` in either case. If `file` is
 * true, `name` is a file, and messages give its lines. */
lk_model *lk__model_of(const char *name, bool file, lk_layer *root, lk_model_input input);

/* Builds the model for its input. Takes `model` and returns it, or NULL on failure or if it is NULL. */
lk_model *lk__model_finish(lk_model *model);

/* Called while a layer is built. Numbers the layer among those with statistics, over `samples` elements per channel and
 * sample. */
lk_status lk__layer_statistics(lk_layer_builder *builder, int64_t samples);

/* Fails unless `in` has `ndim` axes. `want`, such as "[N, C, H, W]", is for the message. */
lk_status lk__layer_check_ndim(lk_layer_builder *builder, lk_shape in, int ndim, const char *want);

/* Sets *count to the number of positions of a window along an axis. Errors: LK_ERR_SHAPE (the kernel does not fit). */
lk_status lk__layer_window(lk_layer_builder *builder, const char *axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t *count);
