/* The runs below a folder, and which of them have changed. One thread uses them. */
#pragma once

#include "lockstep/runs.h"
#include "report/page.h"

#include <sys/types.h>

enum { LK_LIVE_RUNS = 10000 };

/* A file has changed if one of these has. All 0: it is not there. */
typedef struct lk_live_file {
    dev_t device;
    ino_t inode;
    off_t size;
    int64_t modified; /* nanoseconds since 1970 */
} lk_live_file;

typedef struct lk_live_run {
    int64_t number;   /* that the run has in pages */
    char *path;       /* of its file */
    const char *name; /* the path without the folder */
    char *title;      /* "a" for a/epochs.jsonl, "a/epochs-2.jsonl" for a second run, "." for the folder itself */
    /* Kept while the run trains or is looked at. */
    lk_run *run; /* NULL: it is not read */
    lk_step_records steps;
    char *problem; /* why run or steps cannot be read; NULL: nothing is wrong */
    /* Kept always. */
    lk_bytes row; /* of the list of runs; a text */
    bool trains;
    const char *state; /* as lk__page_state gives, or "damaged"; NULL: not read yet */
    int64_t time;      /* of the last record; of the first that was seen while it trains. Nanoseconds since 1970. */
    uint64_t changed, row_changed, state_changed; /* the last versions of lk_live_runs that brought a change */
    /* The progress on its page, made when it is asked for. */
    lk_bytes progress;
    uint64_t progress_version; /* 0: not made yet */
    /* For looking. */
    lk_live_file epochs, step_file;
    bool is_seen, is_stale;
    double watched_until;
    int64_t rank; /* in the order of the list; -1: new */
} lk_live_run;

typedef struct lk_live_runs {
    char *folder;     /* its real path */
    lk_live_run **at; /* those that train first, then the newest first */
    lk_live_run **by_path;
    int64_t count, capacity, paths_capacity;
    int64_t left_out;      /* beyond LK_LIVE_RUNS */
    char *problem;         /* why the folder cannot be read; NULL: it can */
    uint64_t version;      /* of the last look; greater than those of an earlier server */
    uint64_t list_changed; /* when the order, the number or a state of runs changed */
    bool has_more;         /* files that have changed were not read yet */
    double next_walk;
    int64_t next_number;
    double now;
} lk_live_runs;

/* Errors: LK_ERR_NOT_FOUND, LK_ERR_IO (the folder cannot be read), LK_ERR_MEMORY. Free *runs in any case. */
lk_status lk__live_runs_open(lk_live_runs *runs, const char *folder);
void lk__live_runs_free(lk_live_runs *runs);

/* Looks what has changed. Reads what has come to files of runs that train or are looked at, and other files if they
 * have changed; all folders only every few seconds. Ends after a twentieth of a second, with has_more, if there is more
 * to read. A folder that cannot be read any more has no runs, and a warning says why, once. Errors: LK_ERR_MEMORY. */
lk_status lk__live_runs_look(lk_live_runs *runs);

/* The run of a name or a number, or NULL. */
lk_live_run *lk__live_runs_find(const lk_live_runs *runs, const char *name);
lk_live_run *lk__live_runs_numbered(const lk_live_runs *runs, int64_t number);

/* Reads the run and its steps, unless they are kept, and keeps them for a while. run->run is NULL afterwards if it
 * cannot be read. Errors: LK_ERR_MEMORY. */
lk_status lk__live_run_watch(lk_live_runs *runs, lk_live_run *run);
