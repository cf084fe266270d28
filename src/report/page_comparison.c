/* Results of several runs on a page, and the settings that differ between them. */
#include "report/page.h"
#include "report/page_html.h"
#include "report/page_parts.h"

#include <math.h>
#include <string.h>

const char *lk__page_setting(const lk_run *run, const char *name)
{
    const char *value = lk_run_get_setting(run, name);
    return value ? value : "";
}

bool lk__page_shares(const lk_page_run *runs, int count, const char *name)
{
    for (int i = 1; i < count; i++)
        if (strcmp(lk__page_setting(runs[i].run, name), lk__page_setting(runs[0].run, name)) != 0)
            return false;
    return true;
}

void lk__page_put_results(lk_bytes *out, const lk_page_run *runs, int count)
{
    lk__bytes_text(out,
                   "<section><h2>Results</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"list\"><thead><tr>"
                   "<th>run</th><th class=\"n\">best accuracy</th><th class=\"n\">epochs</th><th class=\"n\">time"
                   "</th><th class=\"n\">images/s</th><th>digest</th></tr></thead>\n");
    for (int i = 0; i < count; i++) {
        const lk_run *run = runs[i].run;
        double accuracy;
        const lk_run_epoch *best = lk_run_best(run, &accuracy);
        lk__bytes_text(out, "<tr><td>");
        lk__html_text(out, runs[i].name);
        if (!run->finished)
            lk__bytes_format(out, " (%s)", lk__page_state(run));
        lk__bytes_text(out, "</td><td class=\"n\">");
        lk__html_percent(out, accuracy, 2);
        lk__bytes_text(out, best && isnan(best->val_accuracy) ? " (training)" : "");
        lk__bytes_format(out, "</td><td class=\"n\">%lld</td><td class=\"n\">", (long long)lk_run_last_epoch(run));
        lk__html_duration(out, run->seconds);
        lk__bytes_text(out, "</td><td class=\"n\">");
        lk__html_number(out, lk_run_rate(run));
        lk__bytes_text(out, "</td><td><code>");
        lk__html_text(out, run->digest ? run->digest : "–");
        lk__bytes_text(out, "</code></td></tr>\n");
    }
    lk__bytes_text(out, "</table></div></section>\n");
}

/* Returns whether the runs differ in a setting that run `index` is the first to have. */
static bool comparison_differs(const lk_page_run *runs, int count, int index, const char *name)
{
    for (int i = 0; i < index; i++)
        if (lk_run_get_setting(runs[i].run, name))
            return false;
    return !lk__page_shares(runs, count, name);
}

void lk__page_put_differences(lk_bytes *out, const lk_page_run *runs, int count)
{
    int different = 0;
    lk__bytes_text(out, "<section><h2>Settings that differ</h2><div class=\"scroll\" tabindex=\"0\"><table "
                        "class=\"list\"><thead><tr><th>setting</th>");
    for (int i = 0; i < count; i++) {
        lk__bytes_text(out, "<th>");
        lk__html_text(out, runs[i].name);
        lk__bytes_text(out, "</th>");
    }
    lk__bytes_text(out, "</tr></thead>\n");
    for (int index = 0; index < count; index++) {
        const lk_run *run = runs[index].run;
        for (int s = 0; s < run->n_settings; s++) {
            const char *name = run->settings[s].name;
            if (!comparison_differs(runs, count, index, name))
                continue;
            different++;
            lk__bytes_text(out, "<tr><th scope=\"row\">");
            lk__html_text(out, name);
            lk__bytes_text(out, "</th>");
            for (int i = 0; i < count; i++) {
                const char *value = lk__page_setting(runs[i].run, name);
                lk__bytes_text(out, "<td>");
                lk__html_text(out, *value ? value : "–");
                lk__bytes_text(out, "</td>");
            }
            lk__bytes_text(out, "</tr>\n");
        }
    }
    lk__bytes_text(out,
                   different ? "</table></div></section>\n" : "</table></div><p>No setting differs.</p></section>\n");
}
