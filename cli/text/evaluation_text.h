/* Prints an evaluation for people. */
#pragma once

#include "lockstep/predict.h"

typedef struct cli_evaluation {
    const lk_checkpoint_info *info;
    lk_predictor *predictor;
    lk_dataset *dataset;
    const char *split;  /* "test" */
    const char **names; /* [classes]; NULL: the class has no name */
    lk_evaluation found;
} cli_evaluation;

/* Prints to standard output: accuracy and loss, figures of each class, the confusion matrix if it fits, the classes
 * most often confused, and the worst mistakes if samples have files. */
void cli_print_evaluation(const cli_evaluation *e);
