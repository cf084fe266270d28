#include "cli/commands/data_command.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SAMPLES = 16 };                     /* the default of --samples */
enum { COLUMNS = 79, LEAST_COLUMNS = 24 }; /* the width if standard output is no terminal, or narrower than the least */

enum { CAPTION = 256 };

typedef struct preview {
    data_config *config;
    lk_augment_opts augment;
    bool pairs; /* show each sample twice: as it is, then augmented */
    lk_dataset *dataset;
    lk_channel_moments moments;
    int64_t *order;
    float *images;            /* [count, C, H, W] */
    const char **captions;    /* [count] */
    char (*numbers)[CAPTION]; /* [count]: captions other than class names */
    int64_t samples;
    int64_t count; /* images: one or two per sample */
} preview;

static bool data_preview_changes_images(const lk_augment_opts *opts)
{
    return opts->width_shift > 0 || opts->height_shift > 0 || opts->horizontal_flip || opts->vertical_flip ||
           opts->rotation > 0 || opts->crop_padding > 0 || opts->brightness > 0 || opts->contrast > 0 ||
           opts->rand_augment > 0 || opts->cutout > 0 || opts->erase > 0 || opts->mixup > 0;
}

/* Checks that the file can be written before data are read or downloaded. */
static int preview_check_out(const char *out)
{
    if (!out || !*out)
        return 0;
    size_t length = strlen(out);
    if (length < 4 || strcasecmp(out + length - 4, ".png") != 0)
        return cli_usage_error("--out %s: a preview is a PNG file: expected a name that ends in .png", out);
    const char *slash = strrchr(out, '/');
    char *folder = !slash ? strdup(".") : slash == out ? strdup("/") : strndup(out, (size_t)(slash - out));
    int error = !folder ? ENOMEM : access(folder, W_OK | X_OK) ? errno : 0;
    free(folder);
    return error ? cli_cannot_write(out, error) : 0;
}

static int64_t data_preview_image_values(const lk_dataset *dataset)
{
    return lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
}

static bool preview_allocate(preview *p)
{
    p->count = (p->pairs ? 2 : 1) * p->samples;
    p->order = calloc((size_t)lk_dataset_count(p->dataset), sizeof *p->order);
    p->images = calloc((size_t)p->count, (size_t)data_preview_image_values(p->dataset) * sizeof *p->images);
    p->captions = calloc((size_t)p->count, sizeof *p->captions);
    p->numbers = calloc((size_t)p->count, sizeof *p->numbers);
    return p->order && p->images && p->captions && p->numbers;
}

static lk_status preview_draw_image(preview *p, int64_t position, int64_t sample, bool train)
{
    const data_config *config = p->config;
    return lk_augment_sample(p->dataset, sample, (uint64_t)config->train.seed, config->epoch - 1, train, &p->augment,
                             &p->moments, p->images + position * data_preview_image_values(p->dataset));
}

/* Each change gets a line of its own. */
static void preview_break_lines(char *caption)
{
    char *to = caption;
    for (const char *from = caption; *from; from++) {
        bool is_comma = from[0] == ',' && from[1] == ' ';
        *to++ = is_comma ? '\n' : *from;
        from += is_comma;
    }
    *to = '\0';
}

/* Draws the sample with its class as caption and, with pairs, its augmented image with the sample's number. */
static lk_status preview_draw_sample(preview *p, int64_t position, int64_t sample)
{
    int64_t label = lk_dataset_labels(p->dataset)[sample];
    p->captions[position] = cli_data_class(p->dataset, label, p->numbers[position]);
    lk_status status = preview_draw_image(p, position, sample, false);
    if (status != LK_OK || !p->pairs)
        return status;
    char *caption = p->numbers[position + 1];
    int used = snprintf(caption, CAPTION, "#%lld\n", (long long)sample);
    status = lk_augment_describe(p->dataset, sample, (uint64_t)p->config->train.seed, p->config->epoch - 1, &p->augment,
                                 caption + used, (size_t)(CAPTION - used));
    if (status != LK_OK)
        return status;
    preview_break_lines(caption);
    p->captions[position + 1] = caption;
    return preview_draw_image(p, position + 1, sample, true);
}

static lk_status preview_draw_samples(preview *p)
{
    const data_config *config = p->config;
    lk_status status = LK_OK;
    if (p->augment.center || p->augment.standardize)
        status = lk_dataset_moments(p->dataset, &p->moments);
    if (status == LK_OK)
        status = lk_sample_order(lk_dataset_count(p->dataset), (uint64_t)config->train.seed, config->epoch - 1, true,
                                 p->order);
    for (int64_t i = 0; status == LK_OK && i < p->samples; i++)
        status = preview_draw_sample(p, (p->pairs ? 2 : 1) * i, p->order[i]);
    return status;
}

/* Sets black and white to what bytes 0 and 255 have become, the extremes over all channels. */
static void preview_set_range(const preview *p, lk_contact_sheet *sheet)
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

/* Returns the columns of a sheet that is about square: 0, the default, or with pairs an even number, so that pairs stay
 * together. */
static int64_t preview_columns(const preview *p)
{
    if (!p->pairs)
        return 0;
    int64_t side = 1;
    while (2 * side * side < p->samples)
        side++;
    return 2 * side;
}

static lk_status preview_print_sheet(const lk_contact_sheet *sheet)
{
    lk_text_style style = lk_text_style_of(stdout);
    if (style.columns < LEAST_COLUMNS)
        style.columns = COLUMNS;
    char *text = lk_contact_sheet_text(sheet, style);
    if (!text)
        return lk_error_status();
    fputs(text, stdout);
    lk_free(text);
    return LK_OK;
}

static lk_status preview_show_sheet(const preview *p)
{
    const data_config *config = p->config;
    char title[256];
    bool normalized = config->train.data.normalize != LK_NORMALIZE_NONE;
    snprintf(title, sizeof title, "%s, seed %lld, epoch %lld%s%.100s%s%s", lk_dataset_name(p->dataset),
             (long long)config->train.seed, (long long)config->epoch, p->pairs ? ": " : "",
             p->pairs ? config->train.data.augment : "", normalized ? ", normalize " : "",
             normalized ? cli_normalize_modes[config->train.data.normalize] : "");
    lk_contact_sheet sheet = {
        .title = title,
        .images = p->images,
        .dtype = LK_F32,
        .count = p->count,
        .channels = lk_dataset_channels(p->dataset),
        .height = lk_dataset_height(p->dataset),
        .width = lk_dataset_width(p->dataset),
        .captions = p->captions,
        .columns = preview_columns(p),
    };
    preview_set_range(p, &sheet);
    return config->out ? lk_contact_sheet_write(&sheet, config->out) : preview_print_sheet(&sheet);
}

static int preview_draw(preview *p)
{
    const data_config *config = p->config;
    if (cli_data_open_train(p->config, &p->dataset) != LK_OK)
        return cli_fail();
    int64_t there = lk_dataset_count(p->dataset);
    if (config->samples > there)
        return cli_usage_error("--samples %lld: the training set holds %lld", (long long)config->samples,
                               (long long)there);
    p->samples = config->samples ? config->samples : there < SAMPLES ? there : SAMPLES;
    if (!preview_allocate(p)) {
        fputs("lockstep: out of memory for a preview\n", stderr);
        return 1;
    }
    if (preview_draw_samples(p) != LK_OK || preview_show_sheet(p) != LK_OK)
        return cli_fail();
    cli_print_clean(config->out ? config->out : "", stdout);
    printf("%s%lld sample%s of ", config->out ? ": " : "", (long long)p->samples, p->samples == 1 ? "" : "s");
    cli_print_clean(lk_dataset_name(p->dataset), stdout);
    putchar('\n');
    return 0;
}

int cli_data_preview(data_config *config)
{
    preview p = {.config = config};
    int status = preview_check_out(config->out);
    if (status)
        return status;
    if (lk_augment_parse(config->train.data.augment, &p.augment) != LK_OK)
        return cli_fail();
    p.pairs = data_preview_changes_images(&p.augment);
    p.augment.center = config->train.data.normalize != LK_NORMALIZE_NONE;
    p.augment.standardize = config->train.data.normalize == LK_NORMALIZE_STANDARD;
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    status = preview_draw(&p);
    lk_dataset_release(p.dataset);
    lk_channel_moments_free(&p.moments);
    free(p.order);
    free(p.images);
    free(p.captions);
    free(p.numbers);
    return status;
}
