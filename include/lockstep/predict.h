/* A trained network at work: what it makes of pictures, and how good it is on a data set.
 *
 * Images are prepared as in training (centring, standardisation), and batch-norm uses its running statistics, so that
 * what an image gives does not depend on those beside it but for the choice of implementations, which shapes make. */
#ifndef LOCKSTEP_PREDICT_H
#define LOCKSTEP_PREDICT_H

#include "lockstep/checkpoint.h"
#include "lockstep/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- prediction --------------------------------------------------------------------------------------------------- */

/* Used by one thread at a time. */
typedef struct lk_predictor lk_predictor;

typedef struct lk_predictor_opts {
    const char *devices; /* as lk_devices_open takes them; NULL: "cpu" */
    int64_t batch_size;  /* images that a device gets at a time, at most; 0: 64 */
} lk_predictor_opts;

/* Opens the devices and brings the checkpoint's variables to each; the checkpoint may go. opts NULL: the defaults.
 * Errors: those of lk_checkpoint_model and lk_devices_open; LK_ERR_UNSUPPORTED (a network without classes). */
LK_API lk_predictor *lk_predictor_new(const lk_checkpoint *checkpoint, const lk_predictor_opts *opts);
LK_API void lk_predictor_release(lk_predictor *predictor); /* NULL is fine */

/* The images that it takes, and the classes that it knows; valid as long as the predictor. */
LK_API lk_model_input lk_predictor_input(const lk_predictor *predictor);

/* NULL where the class is out of range or the checkpoint names none. */
LK_API const char *lk_predictor_class_name(const lk_predictor *predictor, int64_t index);

/* probabilities [count, classes]: softmax of the logits of images u8 [count, C, H, W]. Blocks.
 * Errors: LK_ERR_ARGUMENT (a count below 1), LK_ERR_STATE (logits that are not finite: training has failed; the image
 * is named), and what devices report. */
LK_API lk_status lk_predict(lk_predictor *predictor, const uint8_t *images, int64_t count, float *probabilities);

/* probabilities [classes] of a picture in a file, resized to the network's images. Errors also: those of
 * lk_image_read, LK_ERR_UNSUPPORTED (images that are neither grey nor colour). */
LK_API lk_status lk_predict_file(lk_predictor *predictor, const char *path, float *probabilities);

/* The same of a file's bytes in memory; `name` is what messages call them. */
LK_API lk_status lk_predict_bytes(lk_predictor *predictor, const void *bytes, size_t size, const char *name,
                                  float *probabilities);

/* top[k]: the k classes of greatest probability, in that order; of equals the first. k: at most `classes`. */
LK_API void lk_top_classes(const float *probabilities, int64_t classes, int64_t k, int64_t *top);

/* {"file":name,"predictions":[{"class":9,"name":"ankle boot","probability":0.93}, …]}, without spaces: the k of
 * greatest probability, k at most `classes`; a name is null where there is none. To be freed with lk_free; NULL on
 * failure: LK_ERR_MEMORY. */
LK_API char *lk_prediction_json(const lk_predictor *predictor, const char *name, const float *probabilities, int64_t k);

/* --- evaluation --------------------------------------------------------------------------------------------------- */

typedef struct lk_mistake {
    int64_t sample;           /* of the data set */
    int64_t label, predicted; /* classes of the network */
    float label_probability, predicted_probability;
} lk_mistake;

typedef struct lk_evaluation {
    int64_t count, classes;
    lk_mean loss, accuracy;
    int64_t *confusion; /* [label][predicted]: how many samples */
    /* [classes]: of those predicted as a class, and of those that are of it, the share that is both; their harmonic
     * mean. NaN where there are none to divide by. */
    double *precision, *recall, *f1;
    /* The wrong ones with the greatest loss, that first: as many as were asked for, or there are. */
    lk_mistake *mistakes;
    int64_t n_mistakes, wrong;
} lk_evaluation;

/* Counts every sample of a data set once; mistakes: how many are kept. lk_evaluation_free frees what it points to.
 * Where data set and network both name their classes a label is the network's class of that name, whatever its number;
 * else that of its number. Errors: LK_ERR_SHAPE (images of another size, a sample's class is none of the network's),
 * those of lk_predict. */
LK_API lk_status lk_evaluate(lk_predictor *predictor, const lk_dataset *dataset, int64_t mistakes,
                             lk_evaluation *evaluation);
LK_API void lk_evaluation_free(lk_evaluation *evaluation);

/* The confusion matrix as a picture, SVG or PNG by the ending of `path`. names [classes], each may be NULL; NULL: the
 * classes' numbers. Of more than LK_MATRIX_CHART_MOST classes neighbours share a square, as is added to the title.
 * title NULL: none. Errors: those of lk_matrix_chart_write, LK_ERR_MEMORY. */
LK_API lk_status lk_evaluation_draw(const lk_evaluation *evaluation, const char *const *names, const char *title,
                                    const char *path);

/* The mistakes as a contact sheet, each over its label, the prediction and that one's probability: the first ones,
 * where not all fit 8192 pixels a side. `dataset` is the one that was evaluated. Errors: LK_ERR_ARGUMENT (there are no
 * mistakes), those of lk_contact_sheet_write. */
LK_API lk_status lk_evaluation_sheet(const lk_evaluation *evaluation, const lk_dataset *dataset,
                                     const char *const *names, const char *path);

/* All of it as an object of JSON without spaces: count, loss, accuracy, classes (name, count, precision, recall, f1;
 * null where there is none), confusion, mistakes. `dataset` is the one that was evaluated, for the mistakes' files;
 * NULL, and where samples have none: null. To be freed with lk_free; NULL on failure: LK_ERR_MEMORY. */
LK_API char *lk_evaluation_json(const lk_evaluation *evaluation, const lk_dataset *dataset, const char *const *names);

#ifdef __cplusplus
}
#endif

#endif
