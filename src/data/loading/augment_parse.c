/* Parses "shift=0.2,flip,crop=4". The words are in an option table, so that their values are read as those of
 * command-line options. */
#include "data/loading/augment.h"

#include "base/status.h"
#include "lockstep/data.h"
#include "lockstep/options.h"

#include <stdio.h>
#include <string.h>

enum { MAX_WORD = 64, MAX_SIDE = 65536 };

#define AT(field) .offset = offsetof(lk_augment_opts, field)

/* `help` completes an error message: "expected …". */
/* clang-format off: a row a word */
static const lk_option words[] = {
    {.name = "shift",
     .type = LK_OPTION_DOUBLE,
     AT(width_shift),
     .greatest = LK_BELOW_ONE,
     .help = "shift=SHARE, a share of width and height of at least 0 and below 1"},
    {.name = "width-shift",
     .type = LK_OPTION_DOUBLE,
     AT(width_shift),
     .greatest = LK_BELOW_ONE,
     .help = "width-shift=SHARE, a share of the width of at least 0 and below 1"},
    {.name = "height-shift",
     .type = LK_OPTION_DOUBLE,
     AT(height_shift),
     .greatest = LK_BELOW_ONE,
     .help = "height-shift=SHARE, a share of the height of at least 0 and below 1"},
    {.name = "flip", .type = LK_OPTION_FLAG, AT(horizontal_flip), .help = "flip, without a value"},
    {.name = "vflip", .type = LK_OPTION_FLAG, AT(vertical_flip), .help = "vflip, without a value"},
    {.name = "rotate",
     .type = LK_OPTION_DOUBLE,
     AT(rotation),
     .greatest = 180,
     .help = "rotate=DEGREES, an angle of 0 to 180"},
    {.name = "brightness",
     .type = LK_OPTION_DOUBLE,
     AT(brightness),
     .greatest = 1,
     .help = "brightness=SHARE, a change of 0 to 1"},
    {.name = "contrast",
     .type = LK_OPTION_DOUBLE,
     AT(contrast),
     .greatest = 1,
     .help = "contrast=SHARE, a change of 0 to 1"},
    {.name = "rand",
     .type = LK_OPTION_INT64,
     AT(rand_augment),
     .maximum = 30,
     .help = "rand=MAGNITUDE, of RandAugment's operations, 0 to 30"},
    {.name = "erase", .type = LK_OPTION_DOUBLE, AT(erase), .greatest = 1, .help = "erase=PROBABILITY, 0 to 1"},
    {.name = "mixup", .type = LK_OPTION_DOUBLE, AT(mixup), .greatest = 1, .help = "mixup=ALPHA, 0 to 1"},
    {.name = "crop",
     .type = LK_OPTION_INT64,
     AT(crop_padding),
     .maximum = MAX_SIDE,
     .help = "crop=PIXELS, a padding of 0 or more"},
    {.name = "cutout",
     .type = LK_OPTION_INT64,
     AT(cutout),
     .maximum = MAX_SIDE,
     .help = "cutout=PIXELS, a side of 0 or more"},
};
/* clang-format on */
enum { WORDS = sizeof words / sizeof words[0] };

#define EXPECTED                                                                                              \
    "shift=S, width-shift=S, height-shift=S, flip, vflip, rotate=DEGREES, crop=N, brightness=S, contrast=S, " \
    "rand=M, cutout=N, erase=P, mixup=A or none"

static const lk_option *augment_find_word(const char *name)
{
    for (int i = 0; i < WORDS; i++)
        if (strcmp(words[i].name, name) == 0)
            return &words[i];
    return NULL;
}

static lk_status augment_unknown_word(const char *word, const char *name)
{
    const char *near = lk_nearest_word(name, words, WORDS, sizeof words[0]);
    if (near)
        LK_FAIL(LK_ERR_ARGUMENT, "unknown augmentation '%s': did you mean '%s'?", word, near);
    LK_FAIL(LK_ERR_ARGUMENT, "unknown augmentation '%s': expected words of " EXPECTED ", joined by commas", word);
}

/* False: `text` is not a valid value. Drops the message of lk_options_set, which speaks of a command-line option. */
static bool augment_set_word(lk_augment_opts *opts, const char *name, const char *text)
{
    lk_error_state kept;
    lk__error_save(&kept);
    bool fits = lk_options_set(words, WORDS, opts, name, text) == LK_OK;
    lk__error_restore(&kept);
    return fits;
}

static lk_status augment_parse_word(const char *word, lk_augment_opts *opts)
{
    char name[MAX_WORD];
    size_t length = strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    const lk_option *row = augment_find_word(name);
    if (!row)
        return augment_unknown_word(word, name);
    const char *value = word[length] ? word + length + 1 : NULL;
    bool is_flag = row->type == LK_OPTION_FLAG;
    if (is_flag == (value != NULL) || !augment_set_word(opts, name, is_flag ? "true" : value))
        LK_FAIL(LK_ERR_ARGUMENT, "augmentation '%s': expected %s", word, row->help);
    if (strcmp(name, "shift") == 0)
        opts->height_shift = opts->width_shift;
    return LK_OK;
}

lk_status lk_augment_parse(const char *text, lk_augment_opts *opts)
{
    lk_augment_opts parsed = {0};
    bool none = !text || !*text || strcmp(text, "none") == 0;
    for (const char *start = text, *next; !none && start; start = next) {
        char word[MAX_WORD];
        size_t length = strcspn(start, ",");
        next = start[length] ? start + length + 1 : NULL;
        if (length >= sizeof word)
            LK_FAIL(LK_ERR_ARGUMENT, "unknown augmentation '%.60s…': expected words of " EXPECTED ", joined by commas",
                    start);
        snprintf(word, sizeof word, "%.*s", (int)length, start);
        if (strcmp(word, "none") == 0)
            LK_FAIL(LK_ERR_ARGUMENT, "augmentation '%.200s': 'none' stands alone", text);
        LK_TRY(augment_parse_word(word, &parsed));
    }
    parsed.center = opts->center;
    parsed.standardize = opts->standardize;
    *opts = parsed;
    return LK_OK;
}

bool lk__augment_texts_agree(const char *a, const char *b)
{
    lk_augment_opts x = {0}, y = {0};
    lk_error_state kept;
    lk__error_save(&kept);
    bool agree = lk_augment_parse(a, &x) == LK_OK && lk_augment_parse(b, &y) == LK_OK;
    for (int i = 0; i < WORDS && agree; i++) {
        char of_x[64], of_y[64];
        agree = lk_options_text(&words[i], &x, of_x, sizeof of_x) == LK_OK &&
                lk_options_text(&words[i], &y, of_y, sizeof of_y) == LK_OK && strcmp(of_x, of_y) == 0;
    }
    lk__error_restore(&kept);
    return agree;
}
