/* Making and passing on errors inside the library. */
#ifndef LK_BASE_STATUS_H
#define LK_BASE_STATUS_H

#include "lockstep/status.h"

/* Sets this thread's error, unless one is already kept, and gives back `status`. The first error wins because what
 * follows it (NULL operands, poisoned tensors) is its echo. */
lk_status lk__fail(lk_status status, const char *format, ...) LK_PRINTF(2, 3);

/* Puts this thread's error aside and takes it up again, around work done in this thread for others. */
enum { LK_MESSAGE_BYTES = 1024 };

typedef struct lk_error_state {
    lk_status status;
    char message[LK_MESSAGE_BYTES];
} lk_error_state;

void lk__error_save(lk_error_state *state);
void lk__error_restore(const lk_error_state *state);

/* Gives back `status` itself, so that a checker sees that it is not LK_OK. */
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

/* The same where something has to be undone first: sets `status`, a local variable, and jumps to `fail:`. */
#define LK_TRY_GOTO(expression) \
    do {                        \
        status = (expression);  \
        if (status != LK_OK)    \
            goto fail;          \
    } while (0)

#endif
