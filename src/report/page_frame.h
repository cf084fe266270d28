/* The frame around the sections of a page. */
#pragma once

#include "io/bytes.h"

#include <stdbool.h>

enum { LK_PAGE_EVENTS = 16 << 10 };

typedef struct lk_page_frame {
    const char *title, *about; /* HTML: the title, and the line below it */
    /* A server gives the page, with its style and script as files; else all is in the page. */
    bool is_served;
    const char *events; /* text: the address of what changes on it */
    bool is_below;      /* there is a list of runs to go back to */
} lk_page_frame;

void lk__page_begin(lk_bytes *out, const lk_page_frame *frame);
void lk__page_end(lk_bytes *out, const lk_page_frame *frame);

/* Append the style sheet and the script that pages have, or that a server gives with its pages. */
void lk__page_put_style(lk_bytes *out, bool is_served);
void lk__page_put_script(lk_bytes *out, bool is_served);
