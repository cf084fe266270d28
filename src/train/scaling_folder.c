/* Folders of records: which of the scaling reports in one is meant. */
#include "train/scaling.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/run_records.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The last one before `before`; 0: there is none. */
static lk_status last_run(const char *dir, int before, int *run)
{
    DIR *folder = opendir(dir);
    *run = 0;
    if (!folder)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        int number = lk__record_number(entry->d_name, "scaling", ".json");
        if (number > *run && number < before)
            *run = number;
    }
    closedir(folder);
    return LK_OK;
}

static lk_status read_run(const char *dir, int run, lk_scaling_report *report)
{
    size_t size = strlen(dir) + 32;
    char *path = lk__calloc(size, 1);
    if (!path)
        return LK_ERR_MEMORY;
    if (run == 1)
        snprintf(path, size, "%s/scaling.json", dir);
    else
        snprintf(path, size, "%s/scaling-%d.json", dir, run);
    lk_status status = lk__scaling_read_file(path, report);
    lk__free(path);
    return status;
}

lk_status lk_scaling_read(const char *path, lk_scaling_report *report)
{
    struct stat about;
    int run;
    lk__scaling_clear(report);
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return lk__scaling_read_file(path, report);
    LK_TRY(last_run(path, INT32_MAX, &run));
    if (run == 0)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: holds no scaling report: `lockstep train --log-dir` leaves one", path);
    return read_run(path, run, report);
}

static bool is_like(const lk_scaling_report *one, lk_scaling_report *report)
{
    if (strcmp(one->host, report->host) != 0)
        return false;
    bool like = lk_scaling_compare(one, report) == LK_OK;
    lk_error_clear(); /* another run's file is nothing that this one has to answer for */
    return like;
}

lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report)
{
    lk_scaling_report one;
    DIR *folder = opendir(dir);
    if (!folder) /* it is made when the records begin */
        return LK_OK;
    closedir(folder);
    for (int run = INT32_MAX; run > 0;) {
        LK_TRY(last_run(dir, run, &run));
        if (run > 0 && read_run(dir, run, &one) == LK_OK && is_like(&one, report))
            return LK_OK;
        if (lk_error_status() == LK_ERR_MEMORY)
            return LK_ERR_MEMORY;
        lk_error_clear();
    }
    return LK_OK;
}
