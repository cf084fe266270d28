#include "report/scaling_folder.h"

#include "base/log.h"
#include "base/status.h"
#include "lockstep/runs.h"
#include "report/record_names.h"
#include "report/scaling_file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static lk_status scaling_folder_read_run(const char *dir, int run, lk_scaling_report *report)
{
    char path[PATH_MAX];
    LK_TRY(lk__record_path(dir, "scaling", ".json", run, path));
    return lk__scaling_read_file(path, false, report);
}

/* Says why a folder has no report. */
static lk_status scaling_folder_lacks_report(const char *dir)
{
    lk_run *run;
    lk_status status = lk_run_read(dir, &run);
    bool unfinished = status == LK_OK && !run->finished;
    if (unfinished)
        status =
            lk__fail(LK_ERR_NOT_FOUND, "%s: this run has not finished, so there is no scaling report of it", run->path);
    lk_run_release(run);
    if (unfinished || status == LK_ERR_MEMORY)
        return status;
    lk_error_clear();
    LK_FAIL(LK_ERR_NOT_FOUND,
            "%s: holds no scaling report: name the folder of a run; `lockstep runs %s` lists those in it", dir, dir);
}

lk_status lk_scaling_read_run(const char *path, lk_scaling_report *report, char *records)
{
    struct stat about;
    char last_path[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int run, last;
    lk__scaling_clear(report);
    *records = '\0';
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        if (lk__record_number(name, "scaling", ".json") > 0) /* scaling-2.json belongs to epochs-2.jsonl */
            snprintf(records, PATH_MAX, "%.*sepochs%sl", (int)(name - path), path, name + strlen("scaling"));
        return lk__scaling_read_file(path, true, report);
    }
    LK_TRY(lk__record_names_last(path, "scaling", ".json", INT_MAX, &run));
    if (run == 0)
        return scaling_folder_lacks_report(path);
    LK_TRY(lk__record_names_last(path, "epochs", ".jsonl", INT_MAX, &last));
    LK_TRY(lk__record_path(path, "epochs", ".jsonl", last, last_path));
    if (last > run)
        lk__log(LK_LOG_WARNING, "%s: this run has no scaling report; the report is of run %d", last_path, run);
    LK_TRY(lk__record_path(path, "epochs", ".jsonl", run, records));
    return scaling_folder_read_run(path, run, report);
}

lk_status lk_scaling_read(const char *path, lk_scaling_report *report)
{
    char records[PATH_MAX];
    return lk_scaling_read_run(path, report, records);
}

static bool scaling_folder_fill_from(const lk_scaling_report *one, lk_scaling_report *report)
{
    if (strcmp(one->host, report->host) != 0)
        return false;
    bool comparable = lk_scaling_compare(one, report) == LK_OK;
    lk_error_clear(); /* a report that does not compare is no error of this run */
    return comparable;
}

lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report)
{
    lk_scaling_report one;
    DIR *folder = opendir(dir);
    if (!folder) /* it will be made when the records begin */
        return LK_OK;
    closedir(folder);
    for (int run = INT_MAX; run > 0;) {
        LK_TRY(lk__record_names_last(dir, "scaling", ".json", run, &run));
        if (run > 0 && scaling_folder_read_run(dir, run, &one) == LK_OK && scaling_folder_fill_from(&one, report))
            return LK_OK;
        if (lk_error_status() == LK_ERR_MEMORY)
            return LK_ERR_MEMORY;
        lk_error_clear();
    }
    return LK_OK;
}
