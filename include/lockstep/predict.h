/* Prediction and evaluation with a trained network.
 *
 *     lk_checkpoint_open_model("runs/a", LK_CHECKPOINT_BEST, &checkpoint);
 *     lk_predictor *predictor = lk_predictor_new(checkpoint, NULL);
 *     lk_predict_file(predictor, "shoe.png", probabilities);
 *
 * Images are prepared as in training (centering, standardization), and batch-norm uses its running statistics. So the
 * result of an image does not depend on the other images of a batch, except that the size of the batch may choose other
 * implementations. */
#ifndef LOCKSTEP_PREDICT_H
#define LOCKSTEP_PREDICT_H

#include "lockstep/checkpoint.h"
#include "lockstep/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- prediction --------------------------------------------------------------------------------------------------- */

/* A network on one or several devices. One thread at a time uses it. */
typedef struct lk_predictor lk_predictor;

typedef struct lk_predictor_opts {
    const char *devices; /* for lk_devices_open; NULL: "cpu" */
    int64_t batch_size;  /* most images that a device computes at a time; 0: 64 */
    const char *pjrt;    /* PJRT plug-in that has the devices, for lk_pjrt_use; NULL: none is named */
} lk_predictor_opts;

/* Opens the devices and copies the checkpoint's variables to each; the checkpoint may be released afterwards. opts
 * NULL: defaults. NULL on failure. Errors: those of lk_checkpoint_model, lk_devices_open and lk_pjrt_use;
 * LK_ERR_UNSUPPORTED (a network without classes); LK_ERR_ARGUMENT (a plug-in for devices that need none). */
LK_API lk_predictor *lk_predictor_new(const lk_checkpoint *checkpoint, const lk_predictor_opts *opts);

/* As lk_predictor_new, for a network that only its program can build, since a model file has no lines for its layers.
 * Takes the model, also on failure. A NULL model gives NULL and keeps the error. Errors: LK_ERR_FORMAT (the variables,
 * channels or classes are not the checkpoint's). */
LK_API lk_predictor *lk_predictor_new_with(const lk_checkpoint *checkpoint, lk_model *model,
                                           const lk_predictor_opts *opts);
LK_API void lk_predictor_release(lk_predictor *predictor); /* NULL is fine */

/* The size of the images that the network takes, and its number of classes. */
LK_API lk_model_input lk_predictor_input(const lk_predictor *predictor);

/* The name of a class, valid as long as the predictor. NULL: there is no such class, or the checkpoint has no names. */
LK_API const char *lk_predictor_class_name(const lk_predictor *predictor, int64_t index);

/* Sets probabilities [count, classes] to the softmax of the logits of images u8 [count, C, H, W]. Blocks. Errors:
 * LK_ERR_ARGUMENT (a count below 1), LK_ERR_STATE (logits that are not finite, because training has failed; the message
 * names the image), those of devices. */
LK_API lk_status lk_predict(lk_predictor *predictor, const uint8_t *images, int64_t count, float *probabilities);

/* Sets probabilities [classes] for a picture in a file, which is resized to the network's images. Blocks. Errors: those
 * of lk_predict and lk_image_read, LK_ERR_UNSUPPORTED (the network takes images that are neither gray nor color). */
LK_API lk_status lk_predict_file(lk_predictor *predictor, const char *path, float *probabilities);

/* The same for the bytes of a file in memory. name: for messages. */
LK_API lk_status lk_predict_bytes(lk_predictor *predictor, const void *bytes, size_t size, const char *name,
                                  float *probabilities);

/* Sets top[k] to the k classes of greatest probability, in that order; of equals the first. k: 0 … classes. */
LK_API void lk_top_classes(const float *probabilities, int64_t classes, int64_t k, int64_t *top);

/* Gives {"file":name,"predictions":[{"class":9,"name":"ankle boot","probability":0.93}, …]} without spaces, with the k
 * classes of greatest probability, k from 0 to `classes`; a class without a name has null. Free it with lk_free. NULL
 * on failure: LK_ERR_MEMORY. */
LK_API char *lk_prediction_json(const lk_predictor *predictor, const char *name, const float *probabilities, int64_t k);

/* --- evaluation --------------------------------------------------------------------------------------------------- */

typedef struct lk_mistake {
    int64_t sample;           /* number in the data set */
    int64_t label, predicted; /* classes of the network */
    float label_probability, predicted_probability;
} lk_mistake;

/* A confusion matrix has at most so many classes: its memory grows with their square. */
enum { LK_CONFUSION_MOST = 4096 };

typedef struct lk_evaluation {
    int64_t count, classes;
    lk_mean loss, accuracy;
    int64_t *confusion; /* [label][predicted]: number of samples; NULL: more than LK_CONFUSION_MOST classes */
    int64_t *labeled;   /* [classes]: number of samples with that label */
    /* [classes]; NaN: no sample to divide by. precision: share of the samples predicted as a class that are of it.
     * recall: share of the samples of a class that are predicted as it. f1: their harmonic mean. */
    double *precision, *recall, *f1;
    lk_mistake *mistakes; /* [n_mistakes]: those with the greatest loss, largest first */
    int64_t n_mistakes;   /* as many as were asked for, at most `wrong` */
    int64_t wrong;        /* samples whose label is not the likeliest class */
} lk_evaluation;

/* Evaluates every sample of a data set once. mistakes: number of mistakes to keep. lk_evaluation_free frees the arrays.
 * If data set and network both have names of classes, labels are matched by name, else by number. Blocks. Errors:
 * LK_ERR_SHAPE (images of another size, or a class that the network does not have), those of lk_predict and
 * lk_dataset_read. */
LK_API lk_status lk_evaluate(lk_predictor *predictor, const lk_dataset *dataset, int64_t mistakes,
                             lk_evaluation *evaluation);
LK_API void lk_evaluation_free(lk_evaluation *evaluation);

/* Draws the confusion matrix, as SVG or PNG by the ending of `path`. names [classes]: NULL entries, or NULL, stand for
 * the numbers of classes. title NULL: none. With more than LK_MATRIX_CHART_MOST classes neighbors share a square, and
 * the title says so. Errors: LK_ERR_ARGUMENT (there is no matrix), those of lk_matrix_chart_write, LK_ERR_MEMORY. */
LK_API lk_status lk_evaluation_draw(const lk_evaluation *evaluation, const char *const *names, const char *title,
                                    const char *path);

/* Draws the mistakes as a contact sheet, a PNG: each image over its label, the prediction and the prediction's
 * probability; only the first ones, at least one, if not all fit 8192 pixels a side. Floats are drawn between the least
 * and the greatest of them. dataset: the one that was evaluated. Errors: LK_ERR_ARGUMENT (no mistakes), those of
 * lk_contact_sheet_write and lk_dataset_read. */
LK_API lk_status lk_evaluation_sheet(const lk_evaluation *evaluation, const lk_dataset *dataset,
                                     const char *const *names, const char *path);

/* Gives the evaluation as a JSON object without spaces: count, loss, accuracy, classes (name, count, precision, recall,
 * f1), confusion, mistakes; null for what there is not. dataset: the one that was evaluated, for the files of mistakes;
 * NULL: they are null. Free it with lk_free. NULL on failure: LK_ERR_MEMORY. */
LK_API char *lk_evaluation_json(const lk_evaluation *evaluation, const lk_dataset *dataset, const char *const *names);

/* Writes this object, and a newline, to a file, which is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_evaluation_write(const lk_evaluation *evaluation, const lk_dataset *dataset,
                                     const char *const *names, const char *path);

#ifdef __cplusplus
}
#endif

#endif
