#include "cli.h"
#include "progress.h"

#include "lockstep/data.h"
#include "lockstep/plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct data_config {
    const char *out;
    const char *data;
    const char *data_dir;
    int64_t limit_train;
    const char *augment;
    int normalize; /* enum lk_normalize_mode */
    int64_t samples;
    int64_t seed;
    int64_t epoch; /* the first is 1, as in what training prints */
} data_config;

#define AT(field) .offset = offsetof(data_config, field)

static const char *const normalize_modes[] = {
    [LK_NORMALIZE_NONE] = "none",
    [LK_NORMALIZE_CENTER] = "center",
    [LK_NORMALIZE_STANDARD] = "standard",
    NULL,
};

/* clang-format off: a paragraph an option */
static const lk_option options[] = {
    {.name = "out",
     .type = LK_OPTION_STRING,
     AT(out),
     .value = "FILE",
     .help = "the PNG file that a preview is written to"},
    {.name = "data",
     .type = LK_OPTION_STRING,
     AT(data),
     .default_text = "auto",
     .value = "NAME",
     .help = "data set to preview: fashion-mnist, mnist, synthetic, or auto (fashion-mnist, else synthetic)"},
    {.name = "data-dir",
     .type = LK_OPTION_STRING,
     AT(data_dir),
     .value = "DIR",
     .help = "where NAME/FILE or NAME/FILE.gz is looked for before $LOCKSTEP_DATA and ~/.cache/lockstep"},
    {.name = "limit-train",
     .type = LK_OPTION_INT64,
     AT(limit_train),
     .default_text = "-1",
     .minimum = 1,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "the file's first N samples are the training set (unset: all)"},
    {.name = "augment",
     .type = LK_OPTION_STRING,
     AT(augment),
     .value = "WORDS",
     .help = "shift=S, width-shift=S, height-shift=S, flip, crop=N, cutout=N, joined by commas; or none"},
    {.name = "normalize",
     .type = LK_OPTION_CHOICE,
     AT(normalize),
     .default_text = "none",
     .choices = normalize_modes,
     .value = "HOW",
     .help = "per channel, with mean and deviation of the training set"},
    {.name = "samples",
     .type = LK_OPTION_INT64,
     AT(samples),
     .default_text = "16",
     .minimum = 1,
     .maximum = 4096,
     .value = "N",
     .help = "samples to show"},
    {.name = "seed",
     .type = LK_OPTION_INT64,
     AT(seed),
     .default_text = "0",
     .minimum = 0,
     .maximum = INT64_MAX,
     .value = "N",
     .help = "seed of the samples' order and of augmentation"},
    {.name = "epoch",
     .type = LK_OPTION_INT64,
     AT(epoch),
     .default_text = "1",
     .minimum = 1,
     .maximum = UINT32_MAX,
     .value = "N",
     .help = "the epoch whose first samples are shown"},
};
/* clang-format on */

/* --- list --------------------------------------------------------------------------------------------------------- */

static lk_status list_one(const char *name, const data_config *config)
{
    lk_dataset_opts opts = {.dir = config->data_dir, .offline = true};
    lk_dataset *train, *test = NULL;
    lk_status status = lk_dataset_open(name, LK_SPLIT_TRAIN, &opts, &train);
    if (status == LK_OK)
        status = lk_dataset_open(name, LK_SPLIT_TEST, &opts, &test);
    printf("%-14s ", name);
    if (status == LK_OK) {
        printf("%lld + %lld images of %lldx%lldx%lld, %lld classes; ", (long long)lk_dataset_count(train),
               (long long)lk_dataset_count(test), (long long)lk_dataset_channels(train),
               (long long)lk_dataset_height(train), (long long)lk_dataset_width(train),
               (long long)lk_dataset_classes(train));
        cli_print_clean(lk_dataset_source(train), stdout);
    } else if (status == LK_ERR_NOT_FOUND) {
        fputs("not found", stdout);
        status = LK_OK;
    } else {
        cli_print_clean(lk_error_message(), stdout);
    }
    putchar('\n');
    lk_error_clear();
    lk_dataset_release(train);
    lk_dataset_release(test);
    return status;
}

static int list(const data_config *config)
{
    int status = 0;
    const char *name;
    for (size_t i = 0; (name = lk_dataset_known_name(i)); i++)
        if (list_one(name, config) != LK_OK)
            status = 1;
    return status;
}

/* --- preview ------------------------------------------------------------------------------------------------------ */

typedef struct preview {
    const data_config *config;
    lk_augment_opts augment;
    bool pairs; /* each sample twice: as it is, and augmented beside it */
    lk_dataset *dataset;
    lk_channel_moments moments;
    int64_t *order;
    float *images;         /* [count, C, H, W] */
    const char **captions; /* [count] */
    char (*numbers)[24];   /* [count], for captions that are no class names */
    int64_t count;
} preview;

static bool augments(const lk_augment_opts *opts)
{
    return opts->width_shift > 0 || opts->height_shift > 0 || opts->horizontal_flip || opts->crop_padding > 0 ||
           opts->cutout > 0;
}

/* Whether the file can be made shows before data are read, or downloaded. */
static int check_out(const char *out)
{
    if (!out || !*out)
        return cli_usage_error("--out FILE is missing: a preview needs to know where to write its picture");
    size_t length = strlen(out);
    if (length < 4 || strcasecmp(out + length - 4, ".png") != 0)
        return cli_usage_error("--out %s: a preview is a PNG file: expected a name that ends in .png", out);
    const char *slash = strrchr(out, '/');
    char *folder = !slash ? strdup(".") : slash == out ? strdup("/") : strndup(out, (size_t)(slash - out));
    int error = !folder ? ENOMEM : access(folder, W_OK | X_OK) ? errno : 0;
    free(folder);
    if (!error)
        return 0;
    fputs("lockstep: ", stderr);
    cli_print_clean(out, stderr);
    fprintf(stderr, ": cannot be written: %s\n", strerror(error));
    return 1;
}

static lk_status open_named(const data_config *config, const char *name, lk_dataset **dataset)
{
    lk_dataset_opts opts = {.dir = config->data_dir, .limit = config->limit_train > 0 ? config->limit_train : 0};
    return lk_dataset_open(name, LK_SPLIT_TRAIN, &opts, dataset);
}

static lk_status open_dataset(preview *p)
{
    const data_config *config = p->config;
    if (strcmp(config->data, "auto") != 0)
        return open_named(config, config->data, &p->dataset);
    lk_status status = open_named(config, "fashion-mnist", &p->dataset);
    if (status != LK_ERR_NOT_FOUND)
        return status;
    cli_print_log(NULL, LK_LOG_WARNING, lk_error_message());
    lk_error_clear();
    fputs("note: fashion-mnist is neither here nor could it be fetched; showing synthetic images instead\n", stderr);
    return open_named(config, "synthetic", &p->dataset);
}

static int64_t values_of(const lk_dataset *dataset)
{
    return lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
}

static bool allocate(preview *p)
{
    p->count = (p->pairs ? 2 : 1) * p->config->samples;
    p->order = calloc((size_t)lk_dataset_count(p->dataset), sizeof *p->order);
    p->images = calloc((size_t)p->count, (size_t)values_of(p->dataset) * sizeof *p->images);
    p->captions = calloc((size_t)p->count, sizeof *p->captions);
    p->numbers = calloc((size_t)p->count, sizeof *p->numbers);
    return p->order && p->images && p->captions && p->numbers;
}

static lk_status draw_image(preview *p, int64_t place, int64_t sample, bool train)
{
    const data_config *config = p->config;
    return lk_augment_sample(p->dataset, sample, (uint64_t)config->seed, config->epoch - 1, train, &p->augment,
                             &p->moments, p->images + place * values_of(p->dataset));
}

/* What it is, and beside it which sample it is. */
static lk_status draw_sample(preview *p, int64_t place, int64_t sample)
{
    int64_t label = lk_dataset_labels(p->dataset)[sample];
    p->captions[place] = lk_dataset_class_name(p->dataset, label);
    if (!p->captions[place]) {
        snprintf(p->numbers[place], sizeof p->numbers[place], "class %lld", (long long)label);
        p->captions[place] = p->numbers[place];
    }
    lk_status status = draw_image(p, place, sample, false);
    if (status != LK_OK || !p->pairs)
        return status;
    snprintf(p->numbers[place + 1], sizeof p->numbers[place + 1], "#%lld", (long long)sample);
    p->captions[place + 1] = p->numbers[place + 1];
    return draw_image(p, place + 1, sample, true);
}

static lk_status draw_samples(preview *p)
{
    const data_config *config = p->config;
    lk_status status = LK_OK;
    if (p->augment.center || p->augment.standardize)
        status = lk_dataset_moments(p->dataset, &p->moments);
    if (status == LK_OK)
        status =
            lk_sample_order(lk_dataset_count(p->dataset), (uint64_t)config->seed, config->epoch - 1, true, p->order);
    for (int64_t i = 0; status == LK_OK && i < config->samples; i++)
        status = draw_sample(p, (p->pairs ? 2 : 1) * i, p->order[i]);
    return status;
}

/* What byte 0 and byte 255 became, over all channels. */
static void set_range(const preview *p, lk_contact_sheet *sheet)
{
    sheet->black = 0;
    sheet->white = 1;
    for (int64_t c = 0; c < p->moments.channels; c++) {
        double mean = p->augment.center ? p->moments.mean[c] : 0;
        double divisor = p->augment.standardize ? p->moments.deviation[c] + 1e-6 : 1;
        double black = -mean / divisor, white = (1 - mean) / divisor;
        sheet->black = c == 0 || black < sheet->black ? black : sheet->black;
        sheet->white = c == 0 || white > sheet->white ? white : sheet->white;
    }
}

/* About as many rows as samples in a row, where a pair is twice as wide as high; pairs are not torn apart. */
static int64_t columns_of(const preview *p)
{
    if (!p->pairs)
        return 0;
    int64_t side = 1;
    while (2 * side * side < p->config->samples)
        side++;
    return 2 * side;
}

static lk_status write_sheet(const preview *p)
{
    const data_config *config = p->config;
    char title[256];
    bool normalized = config->normalize != LK_NORMALIZE_NONE;
    snprintf(title, sizeof title, "%s, seed %lld, epoch %lld%s%.100s%s%s", lk_dataset_name(p->dataset),
             (long long)config->seed, (long long)config->epoch, p->pairs ? ": " : "", p->pairs ? config->augment : "",
             normalized ? ", normalize " : "", normalized ? normalize_modes[config->normalize] : "");
    lk_contact_sheet sheet = {
        .title = title,
        .images = p->images,
        .dtype = LK_F32,
        .count = p->count,
        .channels = lk_dataset_channels(p->dataset),
        .height = lk_dataset_height(p->dataset),
        .width = lk_dataset_width(p->dataset),
        .captions = p->captions,
        .columns = columns_of(p),
    };
    set_range(p, &sheet);
    return lk_contact_sheet_write(&sheet, config->out);
}

static int draw(preview *p)
{
    const data_config *config = p->config;
    if (open_dataset(p) != LK_OK)
        return cli_fail();
    if (config->samples > lk_dataset_count(p->dataset))
        return cli_usage_error("--samples %lld: the training set holds %lld", (long long)config->samples,
                               (long long)lk_dataset_count(p->dataset));
    if (!allocate(p)) {
        fputs("lockstep: out of memory for a preview\n", stderr);
        return 1;
    }
    if (draw_samples(p) != LK_OK || write_sheet(p) != LK_OK)
        return cli_fail();
    cli_print_clean(config->out, stdout);
    printf(": %lld sample%s of %s\n", (long long)config->samples, config->samples == 1 ? "" : "s",
           lk_dataset_name(p->dataset));
    return 0;
}

static int show_preview(const data_config *config)
{
    preview p = {.config = config};
    int status = check_out(config->out);
    if (status)
        return status;
    if (lk_augment_parse(config->augment, &p.augment) != LK_OK)
        return cli_fail();
    p.pairs = augments(&p.augment);
    p.augment.center = config->normalize != LK_NORMALIZE_NONE;
    p.augment.standardize = config->normalize == LK_NORMALIZE_STANDARD;
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    status = draw(&p);
    lk_dataset_release(p.dataset);
    lk_channel_moments_free(&p.moments);
    free(p.order);
    free(p.images);
    free(p.captions);
    free(p.numbers);
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int run(int argc, char **argv)
{
    data_config config;
    int count;
    if (cli_parse(&cmd_data, argc, argv, &config, &count) != LK_OK)
        return cli_fail();
    if (count > 1)
        return cli_usage_error("unexpected argument '%s'", argv[1]);
    if (count == 1 && strcmp(argv[0], "preview") != 0)
        return cli_usage_error("unknown argument '%s': expected preview, or nothing for a list of data sets", argv[0]);
    if (count == 1)
        return show_preview(&config);
    if (config.out || config.augment)
        return cli_usage_error("--%s belongs to 'lockstep data preview'", config.out ? "out" : "augment");
    return list(&config);
}

const cli_command cmd_data = {
    .name = "data",
    .summary = "List the data sets and where they were found, or show augmented samples",
    .arguments = "[preview]",
    .details =
        "Without 'preview' only --data-dir matters, and nothing is downloaded. A preview shows the first samples of\n"
        "an epoch as training with the same options sees them: each as it is, under the name of its class, and\n"
        "augmented beside it, over its number in the data set.\n",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run,
};
