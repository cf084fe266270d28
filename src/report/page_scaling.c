#include "base/status.h"
#include "lockstep/scaling.h"
#include "report/page_html.h"
#include "report/page_parts.h"
#include "report/scaling_file.h"

#include <math.h>

/* The terms are those of `lockstep report` without --html (cli/text/scaling_text.c). */
static void page_scaling_put_parts(lk_bytes *out, const lk_scaling_report *r)
{
    bool served = r->servers > 0;
    const struct {
        const char *name, *class;
        double seconds;
    } parts[] = {
        {"compute", "k-compute", r->compute},
        {served ? "pulling and pushing" : "exposed exchange", "k-exchange", r->exchange},
        {served ? "waiting because of --max-staleness" : "waiting for the slowest", "k-sum", r->slowest},
        {served ? "waiting for work or input" : "input wait", "k-input", r->input},
        {"other", "k-host", fabs(r->other) < 1e-9 ? 0 : r->other}}; /* a difference of sums: less is rounding */
    enum { PARTS = sizeof parts / sizeof *parts };
    lk__bytes_format(out, "<p>Mean of %lld %s: ", (long long)r->steps,
                     served ? "steps of all workers" : "recorded steps over all devices");
    lk__html_number(out, 1000 * r->step_seconds);
    lk__bytes_text(out, " ms a step.</p>\n<div class=\"bar\" role=\"img\" aria-label=\"parts of a step\">");
    for (int i = 0; i < PARTS; i++) {
        double share = parts[i].seconds / r->step_seconds;
        if (!(share > 0.0005))
            continue;
        lk__bytes_format(out, "<i class=\"%s\" style=\"width:", parts[i].class);
        lk__bytes_fixed(out, 100 * fmin(share, 1), 2);
        lk__bytes_format(out, "%%\" title=\"%s\"></i>", parts[i].name);
    }
    lk__bytes_text(out, "</div>\n<table class=\"list\">");
    for (int i = 0; i < PARTS; i++) {
        lk__bytes_format(out, "<tr><td><i class=\"key %s\"></i>%s</td><td class=\"n\">", parts[i].class, parts[i].name);
        lk__html_number(out, 1000 * parts[i].seconds);
        lk__bytes_text(out, " ms</td><td class=\"n\">");
        lk__html_percent(out, parts[i].seconds / r->step_seconds, 1);
        lk__bytes_text(out, "</td></tr>\n");
    }
    lk__bytes_text(out, "</table>\n");
}

static void page_scaling_put_gain(lk_bytes *out, const lk_scaling_report *r)
{
    lk_speedup gained = lk_scaling_speedup(r);
    unsigned doubts = lk_scaling_doubts(r);
    lk__bytes_format(out, "<h3>What %lld devices gained</h3>\n<p>", (long long)r->devices);
    if (isfinite(gained.speedup) && doubts & LK_SCALING_DISTURBED) {
        lk__bytes_text(out, "The speed-up is unclear: other programs, or more devices than cores, took ");
        lk__html_percent(out, 1 - r->core_share, 0);
        lk__bytes_text(out, " of the cores' time.</p>\n");
    } else if (isfinite(gained.speedup) && doubts && !gained.measured) {
        lk__bytes_text(out, "The speed-up is unclear: the recorded steps took other times than the run's.</p>\n");
    } else if (isfinite(gained.speedup)) {
        lk__bytes_text(out, "Speed-up <b>");
        lk__html_number(out, gained.speedup);
        lk__bytes_text(out, "</b> compared with one device, efficiency ");
        lk__html_percent(out, gained.efficiency, 1);
        lk__bytes_text(out, gained.measured ? " (measured).</p>\n" : " (estimated from the computing time).</p>\n");
    } else {
        lk__bytes_format(out, "The speed-up is not known: %s.</p>\n",
                         r->servers > 0 ? "the run is too short" : "the folder has no run on one device");
    }
}

static void page_scaling_put_predictions(lk_bytes *out, const lk_scaling_report *r)
{
    bool any = false;
    for (int64_t devices = 2; devices <= 1024; devices *= 2) {
        lk_scaling_prediction p;
        if (!lk_scaling_predict(r, devices, false, &p))
            continue;
        if (!any)
            lk__bytes_format(out,
                             "<table class=\"list\"><caption>Predicted from latency and bandwidth, with the same "
                             "batch</caption><thead><tr><th class=\"n\">%s</th><th class=\"n\">step</th><th "
                             "class=\"n\">speed-up</th></tr></thead>\n",
                             r->servers > 0 ? "workers" : "devices");
        any = true;
        lk__bytes_format(out, "<tr><td class=\"n\">%lld</td><td class=\"n\">", (long long)devices);
        lk__html_number(out, 1000 * p.step_seconds);
        lk__bytes_text(out, " ms</td><td class=\"n\">");
        lk__html_number(out, p.speedup);
        lk__bytes_text(out, "</td></tr>\n");
    }
    lk__bytes_text(out, any ? "</table>\n" : "");
}

lk_status lk__page_put_scaling(lk_bytes *out, const char *path)
{
    lk_scaling_report r;
    LK_TRY(lk__scaling_read_file(path, false, &r));
    if (r.steps < 1 || !(r.step_seconds > 0))
        return LK_OK;
    lk__bytes_text(out, "<section><h2>Where the time went</h2>\n<div class=\"two\"><div>");
    page_scaling_put_parts(out, &r);
    lk__bytes_text(out, "</div><div>");
    if (r.devices > 1)
        page_scaling_put_gain(out, &r);
    page_scaling_put_predictions(out, &r);
    lk__bytes_text(out, "</div></div></section>\n");
    return LK_OK;
}
