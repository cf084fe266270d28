/* What files of records are called. */
#ifndef LK_TRAIN_RUN_RECORDS_H
#define LK_TRAIN_RUN_RECORDS_H

/* Of "epochs.jsonl" 1, of "epochs-7.jsonl" 7, for the stem "epochs" and the extension ".jsonl"; of other names 0. */
int lk__record_number(const char *name, const char *stem, const char *extension);

#endif
