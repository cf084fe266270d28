/* Foreign text in messages. */
#pragma once

#include <stddef.h>

enum { LK_QUOTED = 80 };

/* Makes text from outside fit for a message: shortens it, and replaces what is no printable ASCII, such as characters
 * that control a terminal. Returns `quoted`. */
const char *lk__quote(const char *text, char quoted[LK_QUOTED]);
