/* Status codes and error messages.
 *
 * A function that can fail returns lk_status, or a pointer that is NULL on failure. lk_error_message() is the message
 * of the calling thread's first failure since lk_error_clear(); later failures mostly follow from the first. A message
 * is written where the error is found, and passed on unchanged.
 *
 *     if (lk_trainer_fit(trainer, &result) != LK_OK)
 *         fprintf(stderr, "%s\n", lk_error_message()); */
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
    LK_ERR_ARGUMENT,    /* a value out of range, an unknown name, or a combination that makes no sense */
    LK_ERR_SHAPE,       /* shapes that do not fit together */
    LK_ERR_DTYPE,       /* a dtype that the operator does not take */
    LK_ERR_DEVICE,      /* no such device, or operands on different devices */
    LK_ERR_UNSUPPORTED, /* no kernel for this operator and dtype, or a build without the needed library */
    LK_ERR_MEMORY,      /* an allocation failed */
    LK_ERR_IO,          /* the system refused to open, read or write */
    LK_ERR_NOT_FOUND,   /* a file, data set or host was not found anywhere */
    LK_ERR_FORMAT,      /* a file is damaged, or not of the expected format */
    LK_ERR_BACKEND,     /* another library (oneDNN, …) or process reported a failure */
    LK_ERR_STATE,       /* called at the wrong time: no tape is open, the tensor has no elements yet */
    LK_ERR_INTERRUPTED, /* the caller asked to stop */
    LK_ERR_NUMERIC,     /* a loss or a gradient is not finite */
    LK_STATUS_COUNT
} lk_status;

/* A line in the caller's source, for messages about operators. LK_HERE makes one; the macros for operators pass it. */
typedef struct lk_call_site {
    const char *file; /* a string literal: neither copied nor freed */
    int line;
} lk_call_site;

#ifdef __cplusplus
#define LK_HERE (lk_call_site{__FILE__, __LINE__})
#else
#define LK_HERE ((lk_call_site){__FILE__, __LINE__})
#endif

/* The status in words: "shape mismatch". Never NULL; static. */
LK_API const char *lk_status_name(lk_status status);

/* Status and message of this thread's first failure since lk_error_clear(); LK_OK and "": there was none. The text is
 * valid until this thread's next call into the library. */
LK_API lk_status lk_error_status(void);
LK_API const char *lk_error_message(void);
LK_API void lk_error_clear(void);

#ifdef __cplusplus
}
#endif

#endif
