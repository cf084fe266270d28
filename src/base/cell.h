/* Memory for small objects that every operator makes and frees: tensors and their storages.
 *
 * A cell is taken by the thread that pushes and given back by the device's thread, which malloc does badly: both wait
 * for the lock of one arena. Here a thread keeps cells at hand and hands them on in batches. Under sanitizers, which
 * watch each object, and while failures are injected, a cell is an allocation like any other. */
#ifndef LK_BASE_CELL_H
#define LK_BASE_CELL_H

enum { LK_CELL_BYTES = 192 };

/* LK_CELL_BYTES of zeros, aligned to LK_ALIGNMENT; NULL, with the thread's error set, where there is no memory. */
void *lk__cell_new(void);

/* From any thread. lk__cell_free(NULL) is fine. */
void lk__cell_free(void *cell);

#endif
