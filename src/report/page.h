/* Pages about a run for a server; lockstep/runs.h has those that are files. */
#pragma once

#include "io/bytes.h"
#include "lockstep/runs.h"
#include "report/step_records.h"

#include <limits.h>
#include <stdbool.h>

typedef struct lk_page_live {
    const lk_step_records *steps;
    const char *problem; /* why there are none; NULL: nothing is wrong */
    const char *events;  /* the address of what changes on the page */
    const char *folder;  /* its real path; the page shows no file outside of it */
} lk_page_live;

/* Appends the page, or nothing on failure. Errors: LK_ERR_MEMORY. */
lk_status lk__page_make(const lk_page_run *run, const lk_page_live *live, lk_bytes *out);

/* Appends the element of the page that changes while the run trains. */
lk_status lk__page_make_progress(const lk_page_run *run, const lk_page_live *live, lk_bytes *out);

/* A file next to the records of a run. It has the run's number, or is shared by all runs of the folder. */
typedef struct lk_page_file {
    const char *stem, *extension;
    bool is_shared;
} lk_page_file;

static const lk_page_file LK_PAGE_STEPS = {"steps", ".jsonl", false};

/* Writes the path of a run's file, which need not be there. inside: as for lk__page_check_inside; NULL: links may lead
 * anywhere. False, without an error, if the records are in a file of another name; false with the error of
 * lk__page_check_inside. */
bool lk__page_find_file(const lk_run *run, const char *inside, const lk_page_file *file, char path[PATH_MAX]);

/* Refuses a path that links lead out of a folder. folder: its real path. Errors: LK_ERR_IO, LK_ERR_NOT_FOUND. */
lk_status lk__page_check_inside(const char *folder, const char *path);

/* "finished", "trains" or "interrupted". */
const char *lk__page_state(const lk_run *run);

/* Appends "3", "3 of 10" or, while the run trains, "3.25 of 10" and a bar. */
void lk__page_put_epoch(lk_bytes *out, const lk_run *run, const lk_step_records *steps);
