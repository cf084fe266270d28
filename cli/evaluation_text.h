/* An evaluation as a person reads it. */
#ifndef LK_CLI_EVALUATION_TEXT_H
#define LK_CLI_EVALUATION_TEXT_H

#include "lockstep/predict.h"

typedef struct cli_evaluation {
    const lk_checkpoint_info *info;
    lk_predictor *predictor;
    lk_dataset *dataset;
    const char *split;  /* "test" */
    const char **names; /* [classes]; NULL where a class has none */
    lk_evaluation found;
} cli_evaluation;

/* On standard output: accuracy and loss, the classes, the matrix where it fits, what is confused most, and the worst
 * mistakes where samples have files. */
void cli_print_evaluation(const cli_evaluation *e);

#endif
