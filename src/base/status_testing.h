/* Checks the result of a call. The checks of errors clear the error. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/status.h"

#include <string.h>

#define assert_ok(expression)                                    \
    do {                                                         \
        if ((expression) != LK_OK)                               \
            fail_msg("%s: %s", #expression, lk_error_message()); \
    } while (0)

static inline void expect_error(lk_status have, lk_status status, const char *message)
{
    assert_int_equal(have, status);
    assert_string_equal(lk_error_message(), message);
    assert_int_equal(lk_error_status(), status);
    lk_error_clear();
}

static inline void expect_texts(lk_status have, lk_status status, const char *const *texts)
{
    if (have != status || lk_error_status() != status)
        fail_msg("%s (%s), expected %s", lk_status_name(have), lk_error_message(), lk_status_name(status));
    for (; *texts; texts++)
        if (!strstr(lk_error_message(), *texts))
            fail_msg("'%s' does not say '%s'", lk_error_message(), *texts);
    assert_true(*lk_error_message());
    assert_null(strchr(lk_error_message(), '\n'));
    lk_error_clear();
}

/* Checks that the call has failed with `status`, and that the message is one line that contains each of the texts. */
#define expect_failure(have, status, ...) expect_texts(have, status, (const char *const[]){__VA_ARGS__, NULL})
