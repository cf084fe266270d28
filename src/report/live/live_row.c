#include "report/live/live_row.h"

#include "report/page_html.h"

#include <math.h>
#include <string.h>

enum { MOST_TEXT = 60 };

void lk__live_put_path(lk_bytes *out, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/=,@:";
    for (; *path; path++)
        if (strchr(plain, *path))
            lk__bytes_char(out, *path);
        else
            lk__bytes_format(out, "%%%02X", (unsigned)(unsigned char)*path);
}

static void live_row_put_setting(lk_bytes *out, const lk_run *run, const char *name, const char *label)
{
    const char *value = lk_run_get_setting(run, name);
    lk__bytes_format(out, "<td data-label=\"%s\">", label);
    lk__html_short(out, value && *value ? value : "–", MOST_TEXT);
    lk__bytes_text(out, "</td>");
}

void lk__live_put_row(lk_bytes *out, const lk_live_run *live)
{
    const lk_run *run = live->run;
    double accuracy;
    lk__bytes_format(out, "<tr id=\"r%lld\"><td class=\"name\">", (long long)live->number);
    lk__bytes_text(out, "<a href=\"/run/");
    lk__live_put_path(out, live->name);
    lk__bytes_text(out, "\">");
    lk__html_text(out, live->title);
    lk__bytes_text(out, "</a>");
    if (!run) {
        lk__bytes_text(out,
                       "</td><td class=\"mark\"><span class=\"state damaged\">damaged</span></td><td class=\"problem\" "
                       "colspan=\"7\">");
        lk__html_text(out, live->problem ? live->problem : "");
        lk__bytes_text(out, "</td></tr>");
        return;
    }
    const char *state = lk__page_state(run);
    lk__bytes_format(out, "</td><td class=\"mark\"><span class=\"state %s\">%s</span></td>", state, state);
    live_row_put_setting(out, run, "model", "model");
    live_row_put_setting(out, run, "data", "data");
    live_row_put_setting(out, run, "devices in use", "devices");
    lk__bytes_text(out, "<td class=\"epoch\" data-label=\"epoch\">");
    lk__page_put_epoch(out, run, &live->steps);
    lk__bytes_text(out, "</td><td class=\"n\" data-label=\"best accuracy\">");
    const lk_run_epoch *best = lk_run_best(run, &accuracy);
    lk__html_percent(out, accuracy, 2);
    lk__bytes_text(out, best && isnan(best->val_accuracy) ? " (training)" : "");
    lk__bytes_text(out, "</td><td class=\"n\" data-label=\"images/s\">");
    lk__html_number(out, lk_run_rate(run));
    lk__bytes_text(out, "</td><td class=\"n\" data-label=\"time\">");
    lk__html_duration(out, run->seconds);
    lk__bytes_text(out, "</td></tr>");
}

void lk__live_put_columns(lk_bytes *out)
{
    lk__bytes_text(out, "<thead><tr><th>run</th><th>state</th><th>model</th><th>data</th><th>devices</th><th>epoch</th>"
                        "<th class=\"n\">best accuracy</th><th class=\"n\">images/s</th><th class=\"n\">time</th></tr>"
                        "</thead>\n");
}
