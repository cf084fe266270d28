/* Setting and passing on errors inside the library. */
#pragma once

#include "lockstep/status.h"

/* Sets this thread's error, unless one is set already, and returns `status`. The first error is kept because later ones
 * (NULL operands, poisoned tensors) follow from it. */
lk_status lk__fail(lk_status status, const char *format, ...) LK_PRINTF(2, 3);

/* Save and restore this thread's error, around work that the thread does for others. */
enum { LK_MESSAGE_BYTES = 1024 };

typedef struct lk_error_state {
    lk_status status;
    char message[LK_MESSAGE_BYTES];
} lk_error_state;

void lk__error_save(lk_error_state *state);
void lk__error_restore(const lk_error_state *state);

/* Sets the error and returns `status` itself, so that a static checker sees that it is not LK_OK. */
#define LK_FAIL(status, ...)           \
    do {                               \
        lk__fail(status, __VA_ARGS__); \
        return status;                 \
    } while (0)

#define LK_TRY(expression)                       \
    do {                                         \
        lk_status lk_try_status_ = (expression); \
        if (lk_try_status_ != LK_OK)             \
            return lk_try_status_;               \
    } while (0)

/* For functions that must clean up: sets the local variable `status` and jumps to `fail:`. */
#define LK_TRY_GOTO(expression) \
    do {                        \
        status = (expression);  \
        if (status != LK_OK)    \
            goto fail;          \
    } while (0)
