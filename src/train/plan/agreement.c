/* Before the first step, processes that train together compare what they are about to do: if one of them was started
 * differently, the result would match no single set of options. */
#include "train/plan/agreement.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/minmax.h"
#include "core/backend.h"
#include "data/dataset.h"
#include "dist/process/group.h"
#include "dist/service/wire.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/trainer.h"
#include "lockstep/build.h"
#include "lockstep/checkpoint.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* A long value is shortened to its beginning and a hash. */
typedef struct field {
    char name[32], value[96];
} field;

enum { MAX_FIELDS = 128 };

/* Names of fields: processors and libraries of other kinds round differently. */
static const char kernel_kind[] = "kind of kernels", kernel_choice[] = "choice of kernels";

typedef struct field_list {
    field fields[MAX_FIELDS]; /* the bytes after each text are zero, so that fields can be compared as bytes */
    int n;
} field_list;

static field *agreement_add_field(field_list *list, const char *name)
{
    field *f = &list->fields[list->n++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

static void agreement_add_text(field_list *list, const char *name, const char *text)
{
    enum { HASH = 20 };
    field *f = agreement_add_field(list, name);
    if (strlen(text) < sizeof f->value)
        snprintf(f->value, sizeof f->value, "%s", text);
    else
        snprintf(f->value, sizeof f->value, "%.*s… %016" PRIx64, (int)sizeof f->value - HASH - 1, text,
                 (uint64_t)XXH3_64bits(text, strlen(text)));
}

static void agreement_add_hash(field_list *list, const char *name, uint64_t hash)
{
    snprintf(agreement_add_field(list, name)->value, sizeof list->fields[0].value, "%016" PRIx64, hash);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* A text from another process may lack its final zero. */
static const char *agreement_copy_text(const char *from, char *to, size_t size)
{
    memcpy(to, from, size - 1);
    lk__wire_tame(to, size);
    return to;
}

bool lk__agreement_is_same(const void *first, size_t bytes, const void *other, size_t other_bytes, bool same_kernels,
                           const char *whose, const char *others, char *reason, size_t size)
{
    size_t n = (bytes < other_bytes ? bytes : other_bytes) / sizeof(field);
    for (size_t i = 0; i < n; i++) {
        field a, b;
        char name[sizeof a.name + 1], value[sizeof a.value + 1], other_value[sizeof a.value + 1];
        memcpy(&a, (const char *)first + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)other + i * sizeof b, sizeof b);
        agreement_copy_text(a.name, name, sizeof name);
        bool is_kernel = strcmp(name, kernel_kind) == 0 || strcmp(name, kernel_choice) == 0;
        if ((is_kernel && !same_kernels) || memcmp(&a, &b, sizeof a) == 0)
            continue;
        snprintf(reason, size, "%s has another %s: %s, where %s has %s", others, name,
                 agreement_copy_text(b.value, other_value, sizeof other_value), whose,
                 agreement_copy_text(a.value, value, sizeof value));
        return false;
    }
    snprintf(reason, size, "%s says %zu bytes of what it trains, where %s has %zu", others, other_bytes, whose, bytes);
    return bytes == other_bytes;
}

static lk_status agreement_compare(lk_group *group, const field *all, int n)
{
    char reason[LK_MESSAGE_BYTES], who[128];
    size_t bytes = (size_t)n * sizeof *all;
    for (int rank = 1; rank < lk__group_ranks(group); rank++) {
        snprintf(who, sizeof who, "rank %d on %.100s", rank, lk__group_host(group, rank));
        if (!lk__agreement_is_same(all, bytes, all + (size_t)rank * (size_t)n, bytes, true, "rank 0", who, reason,
                                   sizeof reason))
            LK_FAIL(LK_ERR_ARGUMENT, "%s; all processes have to be started alike", reason);
    }
    return LK_OK;
}

/* All ranks list the same number of fields. */
static lk_status agreement_check_list(const field_list *list)
{
    lk_group *group;
    LK_TRY(lk__group_open(&group));
    field *all = lk__group_gather_new(group, list->fields, (size_t)list->n * sizeof *all);
    lk_status status = all ? agreement_compare(group, all, list->n) : lk_error_status();
    lk__free(all);
    return status;
}

static lk_status agreement_check_group(const lk_trainer *trainer, void (*fill)(const lk_trainer *, field_list *))
{
    field_list list = {.n = 0};
    if (trainer->plan.processes == 1)
        return LK_OK;
    fill(trainer, &list);
    return agreement_check_list(&list);
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

/* Compared first, in a message of the same length in every version; later messages may differ in length. */
static void agreement_list_version(const lk_trainer *trainer, field_list *list)
{
    char version[64];
    (void)trainer;
    snprintf(version, sizeof version, "%s %s", lk_build_version(), lk_build_revision());
    agreement_add_text(list, "version of lockstep", version);
}

/* Each process reads the checkpoint on its own, so the check is that all read the same one. */
static void agreement_list_checkpoint(const lk_trainer *trainer, field_list *list)
{
    char text[PATH_MAX + 32] = "none";
    if (trainer->resumed) {
        const char *folder = lk_checkpoint_get_info(trainer->resumed)->folder, *slash = strrchr(folder, '/');
        snprintf(text, sizeof text, "%s with hash %016" PRIx64, slash ? slash + 1 : folder,
                 trainer->resumed->values_hash);
    }
    agreement_add_text(list, "checkpoint to go on from", text);
}

static bool agreement_is_one_of(const char *option, const char *const *names)
{
    while (*names && strcmp(option, *names) != 0)
        names++;
    return *names != NULL;
}

static const char *const checkpoint_options[] = {"checkpoint-dir", "checkpoint-every", "checkpoint-best", NULL};

/* Options that change no result may differ between processes, except those that decide who sends what, and when. So may
 * --devices and --max-staleness. With strategy parameter-server the resulting number of shards is compared instead of
 * --shards, only the chief reads --weights, and there is no exchange. */
static bool agreement_option_may_differ(const lk_trainer *trainer, const lk_option *row)
{
    static const char *const exchange_options[] = {"exchange", "bucket-mb", "optimizer-state", NULL};
    const char *option = row->name;
    if (agreement_is_one_of(option, exchange_options) || agreement_is_one_of(option, checkpoint_options))
        return trainer->server.has_optimizer;
    return !row->recorded || strcmp(option, "devices") == 0 || strcmp(option, "max-staleness") == 0 ||
           (trainer->server.has_optimizer && (strcmp(option, "shards") == 0 || strcmp(option, "weights") == 0));
}

/* Writes what has to be alike. Processes that divide the optimizer's state all send their part for each checkpoint, so
 * they have to make the same ones, though not in folders of the same name. */
static void agreement_option_text(const lk_trainer *trainer, const lk_option *option, char *text, size_t size)
{
    const lk_train_config *config = &trainer->config;
    bool has_folder = config->checkpoints.dir && *config->checkpoints.dir,
         is_folder = strcmp(option->name, "checkpoint-dir") == 0;
    if (!agreement_is_one_of(option->name, checkpoint_options) ||
        (config->devices.optimizer_state && has_folder && !is_folder)) {
        if (lk_options_text(option, config, text, size) != LK_OK)
            lk_error_clear();
    } else {
        snprintf(text, size, "%s", !config->devices.optimizer_state ? "any" : has_folder ? "a folder" : "none");
    }
}

static void agreement_list_options(const lk_trainer *trainer, field_list *list)
{
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT && list->n < MAX_FIELDS; i++) {
        char text[4096], name[32];
        const lk_option *option = &lk_train_options[i];
        if (agreement_option_may_differ(trainer, option))
            continue;
        agreement_option_text(trainer, option, text, sizeof text);
        snprintf(name, sizeof name, "--%s", option->name);
        agreement_add_text(list, name, text);
    }
}

static uint64_t agreement_hash_variables(const lk_model *model)
{
    XXH64_hash_t hash = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        lk_shape shape = lk_model_variable_shape(model, i);
        const char *name = lk_model_variable_name(model, i);
        hash = XXH3_64bits_withSeed(name, strlen(name), hash);
        hash = XXH3_64bits_withSeed(shape.dim, (size_t)shape.ndim * sizeof shape.dim[0], hash);
    }
    return hash;
}

/* Goes on from the hash of the labels. */
static lk_status agreement_hash_read_images(const lk_dataset *data, uint64_t *hash)
{
    int64_t count = lk_dataset_count(data), few = lk__min(count, 64);
    size_t values = (size_t)lk__dataset_image_values(data);
    float *image = lk__calloc(values, sizeof *image);
    lk_status status = image ? LK_OK : LK_ERR_MEMORY;
    for (int64_t i = 0; i < few && status == LK_OK; i++) {
        status = lk_dataset_read(data, i * count / few, image);
        *hash = XXH3_64bits_withSeed(image, values * sizeof *image, *hash);
    }
    lk__free(image);
    return status;
}

lk_status lk__hash_data(const lk_dataset *data, uint64_t *hash)
{
    size_t samples = data ? (size_t)lk_dataset_count(data) : 0;
    *hash = 0;
    if (samples == 0)
        return LK_OK;
    *hash = XXH3_64bits(lk_dataset_labels(data), samples * sizeof *lk_dataset_labels(data));
    if (lk__dataset_reads(data))
        return agreement_hash_read_images(data, hash);
    lk_pixels first;
    LK_TRY(lk__dataset_pixels(data, 0, NULL, &first));
    size_t values = samples * (size_t)lk__dataset_image_values(data);
    *hash = first.bytes ? XXH3_64bits_withSeed(first.bytes, values, *hash)
                        : XXH3_64bits_withSeed(first.floats, values * sizeof(float), *hash);
    return LK_OK;
}

lk_status lk__hash_read_splits(lk_trainer *trainer)
{
    for (int i = 0; i < 2; i++) {
        const lk_dataset *data = lk_trainer_dataset(trainer, i == 0 ? LK_SPLIT_TRAIN : LK_SPLIT_TEST);
        if (data && lk__dataset_reads(data))
            LK_TRY(lk__hash_data(data, &trainer->data.hashes[i]));
    }
    return LK_OK;
}

/* Hashes of arrays cannot fail, and those of functions are there. */
static uint64_t agreement_hash_split(const lk_trainer *trainer, lk_split split)
{
    uint64_t hash = trainer->data.hashes[split == LK_SPLIT_TRAIN ? 0 : 1];
    if (hash == 0)
        (void)lk__hash_data(lk_trainer_dataset(trainer, split), &hash);
    return hash;
}

uint64_t lk__hash_split(lk_trainer *trainer, lk_split split)
{
    return trainer->data.hashes[split == LK_SPLIT_TRAIN ? 0 : 1] = agreement_hash_split(trainer, split);
}

static void agreement_add_kernels(field_list *list, const lk_trainer *trainer)
{
    char text[256] = "";
    const lk_device *device = trainer->devices[0];
    if (device->backend->choices)
        device->backend->choices->describe(device, text, sizeof text);
    agreement_add_text(list, kernel_kind, text);
    agreement_add_hash(list, kernel_choice, trainer->plan.implementations);
}

static void agreement_list_built(const lk_trainer *trainer, field_list *list)
{
    const char *text = trainer->model->text;
    agreement_add_text(list, "model", trainer->plan.model);
    agreement_add_hash(list, "model file", text ? XXH3_64bits(text, strlen(text)) : 0);
    agreement_add_hash(list, "set of variables", agreement_hash_variables(trainer->model));
    agreement_add_hash(list, "training set", agreement_hash_split(trainer, LK_SPLIT_TRAIN));
    agreement_add_hash(list, "validation set", agreement_hash_split(trainer, LK_SPLIT_TEST));
    const double *weights = trainer->data.class_weights;
    size_t weight_bytes = (size_t)trainer->plan.classes * sizeof *weights;
    agreement_add_hash(list, "set of class weights", weights ? XXH3_64bits(weights, weight_bytes) : 0);
    agreement_add_kernels(list, trainer);
}

lk_status lk__agree_on_options(const lk_trainer *trainer)
{
    LK_TRY(agreement_check_group(trainer, agreement_list_version));
    LK_TRY(agreement_check_group(trainer, agreement_list_checkpoint));
    return agreement_check_group(trainer, agreement_list_options);
}

/* Checkpoints are compared before they are restored, so this finds other initial values. The optimizer has no state yet
 * that is not the checkpoint's. */
static lk_status agreement_check_values(const lk_trainer *trainer)
{
    field_list list = {.n = 0};
    char digest[33];
    if (trainer->plan.processes == 1)
        return LK_OK;
    LK_TRY(lk_replicas_digest(trainer->replicas, 0, digest));
    agreement_add_text(&list, "set of starting values", digest);
    return agreement_check_list(&list);
}

lk_status lk__agree_on_work(const lk_trainer *trainer)
{
    LK_TRY(agreement_check_group(trainer, agreement_list_built));
    return agreement_check_values(trainer);
}

/* --- workers of a parameter server, which join one by one --------------------------------------------------------- */

/* Lists the number that results, because the default depends on the devices. */
static void agreement_list_shards(const lk_trainer *trainer, field_list *list)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, trainer->plan.shards);
    agreement_add_text(list, "number of shards", text);
}

lk_status lk__agreement_list(const lk_trainer *trainer, void **fields, size_t *bytes)
{
    field_list *list = lk__calloc(1, sizeof *list);
    *fields = list;
    if (!list)
        return LK_ERR_MEMORY;
    agreement_list_version(trainer, list);
    agreement_list_options(trainer, list);
    agreement_list_shards(trainer, list);
    agreement_list_built(trainer, list);
    *bytes = (size_t)list->n * sizeof(field);
    return LK_OK;
}
