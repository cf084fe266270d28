/* Model files: lines, and blocks of lines. The words for layers are in model_words.c. */
#include "nn/model_file.h"
#include "base/mem.h"
#include "base/status.h"
#include "nn/model_words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_BYTES = 1 << 20,
    MAX_LINE = 1000,
    MAX_LAYERS = 10000, /* including blocks and repetitions */
    MAX_DEPTH = 32,
    MAX_REPEAT = 1000,
};

typedef struct text_line {
    int number;
    const char *text;
} text_line;

typedef struct model_reader {
    const char *path;
    const char *given; /* the text, if it was read already; NULL: the file is read */
    int64_t classes;
    char *whole; /* the text as it was read */
    char *text;  /* cut into lines */
    int n_text_lines;
    text_line *lines; /* without comments and empty lines */
    int n_lines, next;
    int n_layers; /* read so far, including blocks and repetitions */
    int depth;    /* of blocks, including the file itself */
} model_reader;

typedef enum block_end { END_OF_FILE, END, MIDDLE } block_end; /* MIDDLE: before the second part of a block */

/* The blocks of two parts: the word before the second part, and what it makes of them. */
typedef struct join_word {
    const char *name, *middle;
    lk_layer *(*join)(lk_layer *first, lk_layer *second);
    const char *second;     /* what the second part is; NULL: it may be absent, and is then the identity … */
    bool identity_is_first; /* … before the layers, not after them */
} join_word;

static const join_word join_words[] = {
    {"residual", "shortcut", lk_layer_add, NULL, false},
    {"multiply", "by", lk_layer_multiply, "the layers that give the factors", false},
    {"concat", "with", lk_layer_concat, NULL, true},
};
enum { JOINS = sizeof join_words / sizeof join_words[0] };

static const char *const block_words[] = {"sequential", "residual", "shortcut", "multiply", "by",
                                          "concat",     "with",     "repeat",   "end",      NULL};

/* Returns the block that `word` opens, or with `middle` divides; NULL: none. */
static const join_word *model_block_join(const char *word, bool middle)
{
    for (int i = 0; i < JOINS; i++)
        if (strcmp(word, middle ? join_words[i].middle : join_words[i].name) == 0)
            return &join_words[i];
    return NULL;
}

lk_status lk__model_line_fail(const lk_model_line *line, const char *format, ...)
{
    char text[LK_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lk__fail(LK_ERR_FORMAT, "%s:%d: %s", line->file, line->number, text);
    return LK_ERR_FORMAT;
}

/* --- bytes to lines ----------------------------------------------------------------------------------------------- */

static int model_text_count_lines(const char *text)
{
    int count = 1;
    for (; (text = strchr(text, '\n')); text++)
        count++;
    return count;
}

/* Some editors begin a text with it, and a terminal shows nothing of it. */
static const char byte_order_mark[] = "\xEF\xBB\xBF";

static lk_status model_reader_read_stream(model_reader *r, FILE *stream)
{
    size_t got = fread(r->text, 1, MAX_BYTES + 1, stream);
    if (ferror(stream))
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", r->path, strerror(errno));
    if (got > MAX_BYTES)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: more than %d bytes; expected a short text", r->path,
                model_text_count_lines(r->text), MAX_BYTES);
    if (strlen(r->text) < got)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: a byte of 0; expected text", r->path, model_text_count_lines(r->text));
    r->text[got] = '\0';
    if (strncmp(r->text, byte_order_mark, strlen(byte_order_mark)) == 0)
        memmove(r->text, r->text + strlen(byte_order_mark), got + 1 - strlen(byte_order_mark));
    return LK_OK;
}

static lk_status model_reader_read_file(model_reader *r)
{
    r->text = lk__calloc(MAX_BYTES + 2, 1);
    if (!r->text)
        return LK_ERR_MEMORY;
    FILE *stream = fopen(r->path, "rbe");
    if (!stream)
        LK_FAIL(LK_ERR_IO, "%s: cannot be opened: %s", r->path, strerror(errno));
    lk_status status = model_reader_read_stream(r, stream);
    fclose(stream);
    return status;
}

static lk_status model_reader_read(model_reader *r)
{
    if (!r->given)
        LK_TRY(model_reader_read_file(r));
    else if (!(r->text = lk__strdup(r->given)))
        return LK_ERR_MEMORY;
    r->whole = lk__strdup(r->text);
    return r->whole ? LK_OK : LK_ERR_MEMORY;
}

static lk_status model_reader_add_line(model_reader *r, int number, char *text)
{
    text[strcspn(text, "#")] = '\0';
    size_t length = strlen(text);
    if (strspn(text, " \t\r") == length)
        return LK_OK;
    if (length > MAX_LINE)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: a line of %zu characters; expected at most %d", r->path, number, length,
                MAX_LINE);
    r->lines[r->n_lines++] = (text_line){.number = number, .text = text};
    return LK_OK;
}

static lk_status model_reader_split_lines(model_reader *r)
{
    r->n_text_lines = model_text_count_lines(r->text);
    r->lines = lk__calloc((size_t)r->n_text_lines, sizeof *r->lines);
    if (!r->lines)
        return LK_ERR_MEMORY;
    int number = 1;
    for (char *begin = r->text, *end; begin; begin = end ? end + 1 : NULL) {
        end = strchr(begin, '\n');
        if (end)
            *end = '\0';
        LK_TRY(model_reader_add_line(r, number++, begin));
    }
    return LK_OK;
}

/* --- a line to words ---------------------------------------------------------------------------------------------- */

static lk_status model_line_take_name(lk_model_line *line, char *first)
{
    size_t length = strlen(first);
    if (length == 0 || first[length - 1] != ':')
        return LK_OK;
    first[length - 1] = '\0';
    if (!lk__layer_name_ok(first))
        return lk__model_line_fail(line, "the name '%.60s'; expected letters, digits, '_' and '-'", first);
    line->name = first;
    return LK_OK;
}

/* Splits a line into words, which point into `copy`, a buffer of MAX_LINE + 1 bytes. */
static lk_status model_line_split(const model_reader *r, const text_line *from, char *copy, lk_model_line *line)
{
    *line = (lk_model_line){.file = r->path, .number = from->number, .classes = r->classes};
    snprintf(copy, MAX_LINE + 1, "%s", from->text);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (!line->word && !line->name) {
            LK_TRY(model_line_take_name(line, word));
            if (line->name)
                continue;
        }
        if (!line->word)
            line->word = word;
        else if (line->n_arguments == LK_MODEL_LINE_WORDS)
            return lk__model_line_fail(line, "'%.40s' is one setting too many; expected at most %d", word,
                                       LK_MODEL_LINE_WORDS);
        else
            line->arguments[line->n_arguments++] = word;
    }
    if (line->word)
        return LK_OK;
    lk__model_line_fail(line, "'%s:' names nothing; expected a layer after it", line->name);
    return LK_ERR_FORMAT; /* a constant, so that a checker sees that `word` is set if this returns LK_OK */
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static void model_layer_list_release(lk_layer_list *list)
{
    for (int i = 0; i < list->n; i++)
        lk_layer_release(list->layers[i]);
    lk__free(list->layers);
    *list = (lk_layer_list){0};
}

/* Takes `layer`, also on failure. NULL: the error is set already. */
static lk_status model_layer_list_append(lk_layer_list *list, lk_layer *layer)
{
    if (!layer)
        return lk_error_status();
    lk_status status = lk__layer_list_add(list, layer);
    if (status != LK_OK)
        lk_layer_release(layer);
    return status;
}

/* Takes the list's layers. */
static lk_layer *model_layer_list_to_sequential(lk_layer_list *list, int line)
{
    lk_layer *layer = lk_layer_sequential(list->layers, list->n);
    lk__free(list->layers);
    *list = (lk_layer_list){0};
    if (layer)
        layer->line = line;
    return layer;
}

static lk_status model_block_read(model_reader *r, const lk_model_line *opened, lk_layer_list *list, block_end *end);

/* Reads the layers of a block as a sequential. *end: see model_block_read_end. */
static lk_layer *model_block_read_body(model_reader *r, const lk_model_line *opened, block_end *end)
{
    lk_layer_list list = {0};
    if (model_block_read(r, opened, &list, end) == LK_OK)
        return model_layer_list_to_sequential(&list, opened->number);
    model_layer_list_release(&list);
    return NULL;
}

/* Reads the one setting that a block has, "frozen=yes". */
static lk_status model_block_read_settings(const lk_model_line *line, bool *frozen)
{
    static const char setting[] = "frozen=";
    *frozen = false;
    for (int i = 0; i < line->n_arguments; i++) {
        const char *text = line->arguments[i];
        bool is_known = strncmp(text, setting, sizeof setting - 1) == 0;
        if (is_known && i > 0)
            return lk__model_line_fail(line, "frozen is given twice; expected it once");
        if (!is_known)
            return lk__model_line_fail(line, "%s has no setting '%.40s'; expected none but frozen=yes", line->word,
                                       text);
        LK_TRY(lk__model_line_yes(line, "frozen", text + sizeof setting - 1, frozen));
    }
    return LK_OK;
}

static lk_layer *model_block_read_sequential(model_reader *r, const lk_model_line *line)
{
    block_end end = END;
    bool frozen;
    if (model_block_read_settings(line, &frozen) != LK_OK)
        return NULL;
    lk_layer *layer = model_block_read_body(r, line, &end);
    return frozen ? lk_layer_frozen(layer) : layer;
}

static lk_layer *model_block_read_join(model_reader *r, const lk_model_line *line, const join_word *word)
{
    block_end end = MIDDLE;
    bool frozen;
    if (model_block_read_settings(line, &frozen) != LK_OK)
        return NULL;
    lk_layer *first = model_block_read_body(r, line, &end), *second = NULL;
    bool has_second = end == MIDDLE;
    end = END;
    if (first && has_second) {
        second = model_block_read_body(r, line, &end);
    } else if (first && word->second) {
        lk__model_line_fail(line, "%s without %s; expected '%s' and %s", word->name, word->middle, word->middle,
                            word->second);
    } else if (first) {
        second = lk_layer_identity();
    }
    bool swap = !has_second && word->identity_is_first;
    lk_layer *layer = swap ? word->join(second, first) : word->join(first, second);
    if (layer)
        layer->line = line->number;
    return frozen ? lk_layer_frozen(layer) : layer;
}

static lk_status model_line_too_many_layers(const lk_model_line *line)
{
    return lk__model_line_fail(line, "too many layers, repetitions counted; expected at most %d", MAX_LAYERS);
}

/* Reads the same lines again for each repetition. */
static lk_status model_block_read_repetitions(model_reader *r, const lk_model_line *line, int64_t times,
                                              lk_layer_list *list)
{
    int begin = r->next;
    for (int64_t i = 1; i <= times; i++) {
        char name[24];
        block_end end = END;
        r->next = begin;
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (++r->n_layers > MAX_LAYERS)
            return model_line_too_many_layers(line);
        LK_TRY(model_layer_list_append(list, lk_layer_named(name, model_block_read_body(r, line, &end))));
    }
    return LK_OK;
}

static lk_layer *model_block_read_repeat(model_reader *r, const lk_model_line *line)
{
    int64_t times;
    lk_layer_list list = {0};
    if (line->n_arguments != 1) {
        lk__model_line_fail(line, "repeat has %d settings; expected one number, of repetitions", line->n_arguments);
        return NULL;
    }
    if (lk__model_line_integer(line, "the number of repetitions", "", line->arguments[0], 1, MAX_REPEAT, &times) ==
            LK_OK &&
        model_block_read_repetitions(r, line, times, &list) == LK_OK)
        return model_layer_list_to_sequential(&list, line->number);
    model_layer_list_release(&list);
    return NULL;
}

static lk_layer *model_block_read_layer(model_reader *r, const lk_model_line *line)
{
    lk_layer *layer;
    const join_word *join = model_block_join(line->word, false);
    if (++r->n_layers > MAX_LAYERS) {
        model_line_too_many_layers(line);
        return NULL;
    }
    if (strcmp(line->word, "sequential") == 0)
        layer = model_block_read_sequential(r, line);
    else if (join)
        layer = model_block_read_join(r, line, join);
    else if (strcmp(line->word, "repeat") == 0)
        layer = model_block_read_repeat(r, line);
    else
        layer = lk__model_line_layer(line, block_words);
    return line->name ? lk_layer_named(line->name, layer) : layer;
}

/* Checks "end" and the words before a second part, which stand alone on their lines. *end: on input, whether the block
 * may also end with the word before its second part (MIDDLE); on output, how it ended. */
static lk_status model_block_read_end(const lk_model_line *line, const lk_model_line *opened, block_end *end)
{
    const join_word *middle = model_block_join(line->word, true);
    if (line->name || line->n_arguments > 0)
        return lk__model_line_fail(line, "'%s' has a name or a setting; expected it alone on its line", line->word);
    if (!opened)
        return lk__model_line_fail(line, "'%s' without a block that it could belong to; expected a layer", line->word);
    if (middle && (*end != MIDDLE || middle != model_block_join(opened->word, false)))
        return lk__model_line_fail(line, "'%s' in the '%s' of line %d, which takes %s; expected a layer or 'end'",
                                   line->word, opened->word, opened->number,
                                   middle == model_block_join(opened->word, false) ? "one" : "none");
    *end = middle ? MIDDLE : END;
    return LK_OK;
}

static lk_status model_block_read_lines(model_reader *r, const lk_model_line *opened, lk_layer_list *list,
                                        block_end *end)
{
    char copy[MAX_LINE + 1];
    lk_model_line line;
    while (r->next < r->n_lines) {
        LK_TRY(model_line_split(r, &r->lines[r->next++], copy, &line));
        if (strcmp(line.word, "end") == 0 || model_block_join(line.word, true))
            return model_block_read_end(&line, opened, end);
        LK_TRY(model_layer_list_append(list, model_block_read_layer(r, &line)));
    }
    if (opened)
        return lk__model_line_fail(opened, "'%s' is not closed; expected an 'end' before the end of the file",
                                   opened->word);
    return LK_OK;
}

/* Reads up to the line that ends the block that line `opened` began; NULL: up to the end of the file. */
static lk_status model_block_read(model_reader *r, const lk_model_line *opened, lk_layer_list *list, block_end *end)
{
    if (opened && r->depth > MAX_DEPTH)
        return lk__model_line_fail(opened, "blocks are nested too deep; expected at most %d", MAX_DEPTH);
    r->depth++;
    lk_status status = model_block_read_lines(r, opened, list, end);
    r->depth--;
    return status;
}

static lk_layer *model_reader_read_model(model_reader *r)
{
    lk_layer_list list = {0};
    block_end end = END_OF_FILE;
    lk_status status = model_reader_read(r);
    if (status == LK_OK)
        status = model_reader_split_lines(r);
    if (status == LK_OK)
        status = model_block_read(r, NULL, &list, &end);
    if (status == LK_OK && list.n == 0)
        status = lk__fail(LK_ERR_FORMAT, "%s:%d: the file ends without a layer; expected one like 'dense classes'",
                          r->path, r->n_text_lines);
    if (status == LK_OK)
        return model_layer_list_to_sequential(&list, 0);
    model_layer_list_release(&list);
    return NULL;
}

lk_layer *lk__model_file_read(const char *path, const char *given, int64_t classes, char **text)
{
    model_reader reader = {.path = path, .given = given, .classes = classes};
    lk_layer *root = model_reader_read_model(&reader);
    lk__free(reader.text);
    lk__free(reader.lines);
    if (!root)
        lk__free(reader.whole);
    *text = root ? reader.whole : NULL;
    return root;
}
