#include "report/page_frame.h"

#include "io/charts/canvas.h"
#include "report/page_html.h"
#include "report/page_style.h"

#include <string.h>

void lk__page_put_style(lk_bytes *out, bool is_served)
{
    const char *at = page_style;
    for (const char *dark; (dark = strstr(at, "DARK")); at = dark + strlen("DARK")) {
        lk__bytes_put(out, at, (size_t)(dark - at));
        lk__bytes_text(out, page_dark);
    }
    lk__bytes_text(out, at);
    for (int i = 0; i < LK__COLORS; i++)
        lk__bytes_format(out,
                         ".chart [stroke=\"#%06X\"]{stroke:var(--c%d)}.chart circle[fill=\"#%06X\"]{fill:var(--c%d)}\n",
                         (unsigned)lk__colors[i], i, (unsigned)lk__colors[i], i);
    lk__bytes_text(out, is_served ? page_live_style : "");
}

void lk__page_put_script(lk_bytes *out, bool is_served)
{
    lk__bytes_text(out, page_script);
    lk__bytes_text(out, is_served ? page_live_script : "");
    lk__bytes_text(out, "})();");
}

void lk__page_begin(lk_bytes *out, const lk_page_frame *frame)
{
    lk__bytes_text(out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    lk__bytes_text(out, frame->title);
    lk__bytes_text(out, "</title>\n");
    if (frame->is_served) {
        lk__bytes_text(out, "<link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/page.js\" defer></script>"
                            "</head>\n<body data-events=\"");
        lk__html_text(out, frame->events);
        lk__bytes_text(out, "\"><main>\n");
        lk__bytes_text(out, frame->is_below ? "<nav><a href=\"/\">All runs</a></nav>\n" : "");
    } else {
        lk__bytes_text(out, "<style>\n");
        lk__page_put_style(out, false);
        lk__bytes_text(out, "</style></head>\n<body><main>\n");
    }
    lk__bytes_text(out, "<header><div><h1>");
    lk__bytes_text(out, frame->title);
    lk__bytes_text(out, "</h1>\n<p class=\"sub\" id=\"about\">");
    lk__bytes_text(out, frame->about);
    lk__bytes_text(out, frame->is_served ? "</p>\n<p id=\"link\" role=\"status\"></p>" : "</p>");
    lk__bytes_text(out, "</div><button id=\"theme\" hidden type=\"button\">Dark</button></header>\n");
}

void lk__page_end(lk_bytes *out, const lk_page_frame *frame)
{
    lk__bytes_text(out, "</main>\n");
    if (!frame->is_served) {
        lk__bytes_text(out, "<script>");
        lk__page_put_script(out, false);
        lk__bytes_text(out, "</script>");
    }
    lk__bytes_text(out, "</body></html>\n");
}
