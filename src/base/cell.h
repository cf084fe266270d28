/* Memory for the small objects that every operator makes and frees: tensors and their storages.
 *
 * A cell is taken by the thread that pushes and freed by the device's thread. malloc is slow at this, since both
 * threads wait for the lock of one arena. Here each thread keeps free cells, and they change threads in batches. Under
 * sanitizers, which watch each object, and while failures are injected, a cell is an ordinary allocation. */
#pragma once

enum { LK_CELL_BYTES = 192 };

/* Returns LK_CELL_BYTES zeros, aligned to LK_ALIGNMENT; NULL, with the thread's error set, if there is no memory. */
void *lk__cell_new(void);

/* Frees a cell, from any thread. lk__cell_free(NULL) is fine. */
void lk__cell_free(void *cell);
