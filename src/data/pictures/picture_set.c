#include "data/pictures/picture_set.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "base/cache.h"
#include "data/convert.h"
#include "data/formats/packed_file.h"
#include "data/names.h"
#include "data/pictures/codec.h"
#include "data/pictures/decode.h"
#include "lockstep/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { NAMED = 3, LOGGED = 20 };

#define UNREADABLE "some of them cannot be read now"

typedef struct build {
    const char *root;
    lk_split split;
    const lk_dataset_opts *opts;
    lk_picture_folder *folder;
    lk_samples *samples;
    lk_decode_job job;
    uint8_t *kept; /* [files] */
    lk_packed_key key;
    bool packs;        /* the cache can be written */
    bool looks;        /* the cache can be read */
    char problem[512]; /* why the cache cannot be written; "": the user wants none */
    lk_packed_file pack;
} build;

/* --- the key ------------------------------------------------------------------------------------------------------ */

/* Increase this when decoding changes. The key contains it, and the versions of the libraries: of libpng the
 * loaded one's, of libjpeg-turbo, which has no function that tells, the one that this library was built with. */
static const int64_t format_version = 4;

static void picture_set_hash_string(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1);
}

static void picture_set_hash_settings(XXH3_state_t *state, const build *b)
{
    const int64_t numbers[] = {format_version, b->job.wanted.channels, b->job.wanted.height, b->job.wanted.width};
    XXH3_128bits_update(state, numbers, sizeof numbers);
    size_t count;
    const lk_component *libraries = lk_build_components(&count);
    if (lk__png_codec.loaded_version)
        picture_set_hash_string(state, lk__png_codec.loaded_version());
    for (size_t i = 0; i < count; i++)
        if (strcmp(libraries[i].name, "libjpeg") == 0)
            picture_set_hash_string(state, libraries[i].version);
}

static void picture_set_hash_key(build *b, XXH3_state_t *state)
{
    XXH3_128bits_reset(state);
    picture_set_hash_settings(state, b);
    for (int64_t i = 0; i < b->folder->classes.count; i++)
        picture_set_hash_string(state, b->folder->classes.at[i]);
    for (int64_t i = 0; i < b->folder->count + (b->job.wanted.channels ? 0 : b->folder->further); i++) {
        const lk_picture_file *file = &b->folder->files[i];
        const int64_t numbers[] = {file->bytes, file->modified, file->changed, file->label};
        picture_set_hash_string(state, file->path + strlen(b->root));
        XXH3_128bits_update(state, numbers, sizeof numbers);
    }
    XXH128_hash_t sum = XXH3_128bits_digest(state);
    b->key = (lk_packed_key){sum.high64, sum.low64};
}

/* Names the file in the cache: one for each folder, split and settings. When the pictures change it is overwritten. */
static void picture_set_name_cache(const build *b, XXH3_state_t *state, char name[64])
{
    char *found = realpath(b->root, NULL);
    const char *whole = found ? found : b->root, *slash = strrchr(whole, '/');
    const char *last = slash && slash[1] ? slash + 1 : "pictures";
    int kept = (int)strnlen(last, 32);
    while (kept > 0 && (last[kept] & 0xC0) == 0x80) /* within a character of UTF-8 */
        kept--;
    XXH3_128bits_reset(state);
    picture_set_hash_settings(state, b);
    picture_set_hash_string(state, whole);
    XXH3_128bits_update(state, &b->split, sizeof b->split);
    XXH3_128bits_update(state, &b->opts->val_split, sizeof b->opts->val_split);
    snprintf(name, 64, "%.*s-%016" PRIx64, kept, last, XXH3_128bits_digest(state).high64);
    free(found);
}

static lk_status picture_set_open_cache(build *b)
{
    char folder[PATH_MAX], name[64];
    const char *given = b->opts->cache_dir;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        LK_FAIL(LK_ERR_MEMORY, "out of memory");
    lk_status status = LK_OK;
    picture_set_hash_key(b, state);
    picture_set_name_cache(b, state, name);
    XXH3_freeState(state);
    if (given && strcmp(given, "none") == 0)
        return LK_OK;
    b->looks = given && *given ? snprintf(folder, sizeof folder, "%s", given) < PATH_MAX
                               : lk__cache_folder(folder) && strlen(folder) + sizeof "/packed" <= sizeof folder;
    if (!b->looks)
        snprintf(b->problem, sizeof b->problem, "%s",
                 given ? "its path is too long" : "without HOME or XDG_CACHE_HOME there is no place for one");
    if (b->looks && !(given && *given))
        strcat(folder, "/packed");
    if (b->looks)
        status = lk__packed_lock(&b->pack, folder, name, b->job.reporter, b->problem);
    b->packs = b->looks && status == LK_OK;
    return status == LK_ERR_IO ? LK_OK : status;
}

/* --- pictures that cannot be used --------------------------------------------------------------------------------- */

static int64_t picture_set_count_bad(const build *b)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < b->job.count; i++)
        bad += b->job.problems[i] != NULL;
    return bad;
}

static lk_status picture_set_refuse_bad(const build *b, int64_t bad)
{
    char list[800] = "";
    size_t used = 0;
    int64_t named = 0;
    for (int64_t i = 0; i < b->job.count && named < NAMED; i++) {
        if (!b->job.problems[i])
            continue;
        int length = snprintf(list + used, sizeof list - used, "%s%s: %s", named++ ? "; " : "", b->job.files[i].path,
                              b->job.problems[i]);
        used += length < 0 || (size_t)length >= sizeof list - used ? sizeof list - 1 - used : (size_t)length;
    }
    LK_FAIL(LK_ERR_FORMAT, "%" PRId64 " of %" PRId64 " pictures cannot be used (--skip-bad leaves them out): %s%s", bad,
            b->job.count, list, bad > named ? "; …" : "");
}

static void picture_set_log_bad(const build *b, int64_t bad)
{
    int64_t logged = 0;
    for (int64_t i = 0; i < b->job.count && logged < LOGGED; i++)
        if (b->job.problems[i]) {
            lk__log(LK_LOG_WARNING, "left out: %s: %s", b->job.files[i].path, b->job.problems[i]);
            logged++;
        }
    lk__log(LK_LOG_WARNING, "%" PRId64 " of %" PRId64 " pictures of %s cannot be used and are left out%s", bad,
            b->job.count, b->root, bad > logged ? "; the first of them are named above" : "");
}

/* Marks the pictures without a problem; fails if there are none. */
static lk_status picture_set_keep_good(build *b)
{
    int64_t bad = picture_set_count_bad(b);
    if (bad == b->job.count)
        LK_FAIL(LK_ERR_FORMAT, "%s: none of its %" PRId64 " pictures can be used; the first: %s: %s", b->root, bad,
                b->job.files[0].path, b->job.problems[0]);
    for (int64_t i = 0; i < b->job.count; i++)
        b->kept[i] = !b->job.problems[i];
    return LK_OK;
}

/* --- decoding ----------------------------------------------------------------------------------------------------- */

/* Sets *channels to 3 if a picture outside of the split has color. It is usually found among the first, so that all
 * headers are read only if the pictures are gray. */
static lk_status picture_set_examine_further(build *b, int64_t *channels)
{
    enum { FIRST = 256 };
    int64_t count = b->folder->further, end;
    char **problems = lk__calloc((size_t)count + 1, sizeof *problems);
    lk_image *headers = lk__calloc((size_t)count + 1, sizeof *headers);
    lk_status status = problems && headers ? LK_OK : LK_ERR_MEMORY;
    lk_decode_job job = b->job;
    for (int64_t begin = 0; status == LK_OK && begin < count && *channels < 3; begin = end) {
        end = begin ? count : lk__min(FIRST, count);
        job.files = b->folder->files + b->folder->count + begin;
        job.count = end - begin;
        job.problems = problems + begin;
        job.headers = headers + begin;
        status = lk__examine_files(&job);
        for (int64_t i = begin; i < end; i++)
            if (!problems[i])
                *channels = lk__max(*channels, headers[i].channels);
    }
    b->job.unreadable = job.unreadable;
    for (int64_t i = 0; problems && i < count; i++)
        lk__free(problems[i]);
    LK_FREE_ALL(problems, headers);
    return status;
}

/* Decides the channels (color if any picture of the training set has color) and the size, unless the options give them.
 * At least one file must be kept. */
static lk_status picture_set_choose_sizes(build *b)
{
    const lk_image *headers = b->job.headers;
    int64_t at = 0, channels = 1;
    while (!b->kept[at])
        at++;
    const lk_image *first = &headers[at];
    bool resized = b->job.wanted.height != 0;
    for (int64_t i = at; i < b->job.count && !b->folder->is_outside; i++)
        if (b->kept[i] && headers[i].channels > channels)
            channels = headers[i].channels;
    if (!resized)
        LK_TRY(lk__check_one_size(&b->job));
    if (!b->job.wanted.channels) {
        LK_TRY(picture_set_examine_further(b, &channels));
        b->job.wanted.channels = channels;
    }
    if (!resized) {
        b->job.wanted.height = first->height;
        b->job.wanted.width = first->width;
    }
    return LK_OK;
}

/* The pictures are decoded into the cache's file, or into memory if the file cannot be written. */
static lk_status picture_set_allocate_images(build *b)
{
    lk_samples *s = b->samples;
    char problem[512] = UNREADABLE;
    s->channels = b->job.wanted.channels;
    s->height = b->job.wanted.height;
    s->width = b->job.wanted.width;
    if (b->packs && !b->job.unreadable && lk__packed_begin(&b->pack, s, b->job.count, &b->job.images, problem) == LK_OK)
        return LK_OK;
    if (b->packs)
        lk__log(LK_LOG_WARNING, "the pictures of %s are decoded into memory, and anew in the next run: %s", b->root,
                problem);
    b->packs = false;
    LK_TRY(lk__samples_allocate_images(s, b->job.count));
    b->job.images = s->memory;
    return LK_OK;
}

/* Closes the gaps of pictures that are left out. */
static void picture_set_compact_images(build *b)
{
    lk_samples *s = b->samples;
    int64_t values = s->channels * s->height * s->width;
    s->count = 0;
    for (int64_t i = 0; i < b->job.count; i++) {
        if (!b->kept[i])
            continue;
        if (s->count != i)
            memmove(b->job.images + s->count * values, b->job.images + i * values, (size_t)values);
        s->count++;
    }
}

static lk_status picture_set_store_images(build *b)
{
    char problem[512] = UNREADABLE;
    picture_set_compact_images(b);
    if (!b->packs)
        return LK_OK;
    lk_status status = LK_ERR_IO;
    if (b->job.unreadable)
        lk__packed_keep_in_memory(&b->pack, b->samples);
    else
        status = lk__packed_finish(&b->pack, &b->key, b->job.count, b->kept, b->samples, problem);
    if (status != LK_ERR_IO)
        return status;
    lk__log(LK_LOG_WARNING, "the pictures of %s are decoded anew in the next run: %s", b->root, problem);
    return LK_OK;
}

static lk_status picture_set_decode(build *b)
{
    if (b->problem[0])
        lk__log(LK_LOG_WARNING, "no cache for the pictures of %s, which are decoded anew in every run: %s", b->root,
                b->problem);
    if (b->job.count > 1000)
        lk__log(LK_LOG_INFO, "decoding %" PRId64 " pictures of %s, once", b->job.count, b->root);
    LK_TRY(lk__examine_files(&b->job));
    LK_TRY(picture_set_keep_good(b));
    LK_TRY(picture_set_choose_sizes(b));
    LK_TRY(picture_set_allocate_images(b));
    LK_TRY(lk__decode_files(&b->job));
    int64_t bad = picture_set_count_bad(b);
    /* Refused only after decoding, so that the message names all bad files, whatever is wrong with them. */
    if (bad && !b->opts->skip_bad)
        return picture_set_refuse_bad(b, bad);
    LK_TRY(picture_set_keep_good(b));
    if (bad)
        picture_set_log_bad(b, bad);
    return picture_set_store_images(b);
}

/* Another program may have written anything into the file, with right checksums. */
static bool picture_set_marks_are_right(const build *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->job.count && b->kept[i] <= 1; i++)
        n += b->kept[i];
    return n == b->samples->count;
}

/* A cache that leaves out bad pictures is not used without opts->skip_bad. */
static lk_status picture_set_use_cache(build *b, bool *used)
{
    lk_status status = lk__packed_read(&b->pack, &b->key, b->job.count, b->samples, b->kept);
    *used = false;
    if (status == LK_OK && !picture_set_marks_are_right(b)) {
        lk__samples_free(b->samples);
        status = LK_ERR_FORMAT;
    }
    if (status == LK_ERR_FORMAT || status == LK_ERR_STATE)
        lk__log(LK_LOG_INFO, "%s is %s: made anew", b->pack.path,
                status == LK_ERR_STATE ? "of other pictures" : "damaged");
    if (status == LK_ERR_MEMORY || status == LK_ERR_INTERRUPTED)
        return status;
    int64_t bad = b->job.count - b->samples->count;
    if (status != LK_OK || (bad && !b->opts->skip_bad)) {
        lk__samples_free(b->samples);
        return LK_OK;
    }
    *used = true;
    int64_t logged = 0;
    for (int64_t i = 0; i < b->job.count && logged < LOGGED && bad; i++)
        if (!b->kept[i]) {
            lk__log(LK_LOG_WARNING, "left out: %s", b->job.files[i].path);
            logged++;
        }
    if (bad)
        lk__log(LK_LOG_WARNING, "%" PRId64 " of %" PRId64 " pictures of %s cannot be used and are left out", bad,
                b->job.count, b->root);
    return LK_OK;
}

/* --- the data set ------------------------------------------------------------------------------------------------- */

/* Sets labels and class names, and names each sample by its path inside `root`. */
static lk_status picture_set_label_samples(build *b)
{
    size_t root = strlen(b->root);
    int64_t n = 0;
    LK_TRY(lk__samples_allocate_labels(b->samples, b->samples->count));
    b->samples->classes = b->folder->classes.count;
    b->samples->class_names = b->folder->classes;
    b->folder->classes = (lk_names){0};
    for (int64_t i = 0; i < b->job.count; i++) {
        if (!b->kept[i])
            continue;
        b->samples->labels[n++] = b->job.files[i].label;
        LK_TRY(lk__names_add(&b->samples->files, b->job.files[i].path + root + 1));
    }
    return LK_OK;
}

static lk_status picture_set_build_samples(build *b)
{
    size_t files = (size_t)b->folder->count;
    b->job.problems = lk__calloc(files, sizeof *b->job.problems);
    b->job.headers = lk__calloc(files, sizeof *b->job.headers);
    b->kept = lk__calloc(files, 1);
    bool packed = false;
    if (!b->job.problems || !b->job.headers || !b->kept)
        return LK_ERR_MEMORY;
    LK_TRY(picture_set_open_cache(b));
    if (b->looks)
        LK_TRY(picture_set_use_cache(b, &packed));
    if (!packed)
        LK_TRY(picture_set_decode(b));
    return picture_set_label_samples(b);
}

lk_status lk__picture_set_open(const char *root, lk_split split, const lk_dataset_opts *opts, lk_picture_folder *folder,
                               lk_samples *samples)
{
    const lk_data_reporter reporter = {opts->progress, opts->progress_user, root};
    build b = {
        .root = root,
        .split = split,
        .opts = opts,
        .folder = folder,
        .samples = samples,
        .job = {.files = folder->files, .count = folder->count, .threads = opts->threads, .reporter = &reporter},
        .pack = {.lock = -1, .fd = -1},
    };
    b.job.wanted.channels = opts->channels;
    lk_status status = lk__parse_resize(opts->resize, &b.job.wanted.height, &b.job.wanted.width);
    if (status == LK_OK)
        status = picture_set_build_samples(&b);
    lk__packed_close(&b.pack);
    for (int64_t i = 0; b.job.problems && i < b.job.count; i++)
        lk__free(b.job.problems[i]);
    LK_FREE_ALL(b.job.problems, b.job.headers, b.kept);
    return status;
}
