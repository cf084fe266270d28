/* Status codes, messages, and the place in the caller's source that a message names.
 *
 * A function that can fail returns lk_status, or a pointer that is NULL on failure. lk_error_message() is the message
 * of the calling thread's first failure since lk_error_clear(): what follows a failure is mostly its echo. It is made
 * once, where the error is decided, and passed on unchanged. */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LK_API __attribute__((visibility("default")))
#define LK_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LK_API
#define LK_PRINTF(text, first)
#endif

typedef enum lk_status {
    LK_OK = 0,
    LK_ERR_ARGUMENT,    /* a value out of range, an unknown name, a combination that makes no sense */
    LK_ERR_SHAPE,       /* shapes that do not fit together */
    LK_ERR_DTYPE,       /* a dtype the operator does not take */
    LK_ERR_DEVICE,      /* no such device, or operands on different devices */
    LK_ERR_UNSUPPORTED, /* the backend has no kernel for this operator and dtype */
    LK_ERR_MEMORY,      /* an allocation failed */
    LK_ERR_IO,          /* the system refused to open, read or write */
    LK_ERR_NOT_FOUND,   /* looked for everywhere, and nowhere to be had */
    LK_ERR_FORMAT,      /* a file was read and is not what it should be */
    LK_ERR_BACKEND,     /* a library below (oneDNN, …) reported a failure */
    LK_ERR_STATE,       /* called at the wrong time: no tape is open, the tensor holds nothing yet */
    LK_ERR_INTERRUPTED, /* the caller asked to stop */
    LK_ERR_NUMERIC,     /* a loss or a gradient is not finite */
    LK_STATUS_COUNT
} lk_status;

/* A place in the caller's source. LK_HERE makes one; the macros over the operators pass it along. */
typedef struct lk_place {
    const char *file; /* a string literal: never copied, never freed */
    int line;
} lk_place;

#define LK_HERE ((lk_place){__FILE__, __LINE__})

/* The status in words: "shape mismatch". Never NULL; static. */
LK_API const char *lk_status_name(lk_status status);

/* Status and message of the first failure in this thread since lk_error_clear(), or LK_OK and "".
 * The text is valid until the next call into the library from this thread. */
LK_API lk_status lk_error_status(void);
LK_API const char *lk_error_message(void);
LK_API void lk_error_clear(void);

#ifdef __cplusplus
}
#endif

#endif
