/* An opened checkpoint. */
#pragma once

#include "io/safetensors.h"
#include "train/checkpoint/checkpoint.h"

#include <jansson.h>

struct lk_checkpoint {
    lk_checkpoint_info info;
    char *folder;
    json_t *state;
    char *model_file, *implementations; /* paths; NULL: no such file */
    char *model_text;                   /* the text of the model file */
    bool is_model_only;                 /* opened without what only training needs */
    lk_safetensors *model, *optimizer;  /* optimizer NULL: no such file, or is_model_only */
    const char *optimizer_kind;         /* NULL: no optimizer */
    int64_t optimizer_steps;
    uint64_t values_hash;          /* of all variables and the optimizer's state, by the manifest */
    int n;                         /* variables */
    const lk_safetensor **tensors; /* [n], in the model's order */
    const float **values;          /* [n], inside `model` */
    const char **class_names;
    double *moments; /* mean, then deviation */
    lk_checkpoint_setting *settings;
};

/* A member of state.json; NULL: no such member. */
const json_t *lk__checkpoint_member(const lk_checkpoint *checkpoint, const char *name);

/* Frees all tensors; state.json stays. */
void lk__checkpoint_drop_tensors(lk_checkpoint *checkpoint);

/* Like lk_checkpoint_load, but without a copy on devices that compute in host memory: there the tensors share the
 * checkpoint's memory and keep it alive. They must not be written. */
lk_status lk__checkpoint_lend(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables);

/* Checks that the checkpoint's variables are those of the model. Errors: LK_ERR_FORMAT, which names the first that
 * differs. */
lk_status lk__checkpoint_check_model(const lk_checkpoint *checkpoint, const lk_model *model);
