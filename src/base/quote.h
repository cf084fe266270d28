/* Quotes text from outside, such as a file's contents, in messages. */
#pragma once

#include <stddef.h>

enum { LK_QUOTED = 80 };

/* Copies `text` to `quoted` and returns it. Cuts a long text, and replaces characters other than printable ASCII, which
 * may control a terminal. */
const char *lk__quote(const char *text, char quoted[LK_QUOTED]);
