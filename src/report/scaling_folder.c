#include "report/scaling_folder.h"

#include "base/status.h"
#include "report/record_names.h"
#include "report/scaling_file.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

static lk_status scaling_folder_read_run(const char *dir, int run, lk_scaling_report *report)
{
    char path[PATH_MAX];
    LK_TRY(lk__record_path(dir, "scaling", ".json", run, path));
    return lk__scaling_read_file(path, false, report);
}

lk_status lk_scaling_read(const char *path, lk_scaling_report *report)
{
    struct stat about;
    int run;
    lk__scaling_clear(report);
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return lk__scaling_read_file(path, true, report);
    LK_TRY(lk__record_names_last(path, "scaling", ".json", INT_MAX, &run));
    if (run == 0)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: holds no scaling report: `lockstep train --log-dir` leaves one", path);
    return scaling_folder_read_run(path, run, report);
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
