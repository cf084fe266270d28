/* Exports a network as a C file with a header. Above a million parameters the weights go to a third file. */
#include "base/status.h"
#include "export/c_calls.h"
#include "export/export_files.h"
#include "io/bytes.h"
#include "io/records/protobuf.h"
#include "lockstep/build.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_PARAMETERS_INSIDE = 1000000, NAME_BYTES = 256 };

typedef struct c_source {
    const lk_network *network;
    lk_c_plan plan;
    char name[NAME_BYTES]; /* prefix of everything that the header declares */
    char stem[PATH_MAX];   /* the path without ".c" */
    const char *file;      /* the stem without folders; points into it */
    bool has_weights_file;
    uint64_t hash; /* of the weights file */
    lk_bytes out;
} c_source;

/* --- names -------------------------------------------------------------------------------------------------------- */

static lk_status c_source_set_names(c_source *s, const char *path)
{
    size_t length = strlen(path);
    if (length >= sizeof s->stem)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", path);
    if (length < 3 || strcmp(path + length - 2, ".c") != 0 || path[length - 3] == '/')
        LK_FAIL(LK_ERR_ARGUMENT, "%s: C is written to a file whose name ends in '.c'; expected a path as net.c", path);
    memcpy(s->stem, path, length - 2);
    s->stem[length - 2] = '\0';
    const char *slash = strrchr(s->stem, '/');
    s->file = slash ? slash + 1 : s->stem;
    /* C replaces two question marks and one more character by another one: a trigraph. */
    bool not_includable = strstr(s->file, "??") != NULL;
    for (const char *c = s->file; *c; c++)
        not_includable |= *c == '"' || *c == '\\' || iscntrl((unsigned char)*c);
    if (not_includable)
        LK_FAIL(LK_ERR_ARGUMENT,
                "%s: C cannot include NAME.h where NAME has a quote, a backslash, a control character or two "
                "question marks",
                path);
    static const char *const headers[] = {"math", "stddef", "stdint", "stdio", "stdlib", "string"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (strcasecmp(s->file, headers[i]) == 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "%s: its header would stand in the place of <%s.h>, which it needs; expected another "
                    "name",
                    path, headers[i]);
    int n = snprintf(s->name, sizeof s->name, "%s%s", isalpha((unsigned char)*s->file) ? "" : "net_", s->file);
    if (n >= (int)sizeof s->name)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the name is too long for one in C", path);
    for (char *c = s->name; *c; c++)
        if (!isalnum((unsigned char)*c) || (unsigned char)*c > 127)
            *c = '_';
    static const char *const types[] = {
        "bool",         "char",         "schar",       "uchar",       "shrt",        "ushrt",       "int",
        "uint",         "long",         "ulong",       "llong",       "ullong",      "size",        "wchar",
        "wint",         "ptrdiff",      "sig_atomic",  "intmax",      "uintmax",     "intptr",      "uintptr",
        "int8",         "int16",        "int32",       "int64",       "uint8",       "uint16",      "uint32",
        "uint64",       "int_least8",   "int_least16", "int_least32", "int_least64", "uint_least8", "uint_least16",
        "uint_least32", "uint_least64", "int_fast8",   "int_fast16",  "int_fast32",  "int_fast64",  "uint_fast8",
        "uint_fast16",  "uint_fast32",  "uint_fast64"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcasecmp(s->name, types[i]) == 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "%s: C has the macro that its header would define for the width of images; expected another name",
                    path);
    return LK_OK;
}

/* Writes a text, replacing each '@' by the prefix. */
static void c_source_put_template(c_source *s, const char *text)
{
    for (const char *at; (at = strchr(text, '@')); text = at + 1) {
        lk__bytes_put(&s->out, text, (size_t)(at - text));
        lk__bytes_text(&s->out, s->name);
    }
    lk__bytes_text(&s->out, text);
}

/* Writes a preprocessor directive, such as "#define ", and the prefix in upper case. */
static void c_source_put_upper_directive(c_source *s, const char *directive)
{
    lk__bytes_text(&s->out, directive);
    for (const char *c = s->name; *c; c++)
        lk__bytes_char(&s->out, (char)toupper((unsigned char)*c));
}

static void c_source_put_upper_define(c_source *s, const char *what, int64_t value)
{
    c_source_put_upper_directive(s, "#define ");
    lk__bytes_format(&s->out, "_%s %lld\n", what, (long long)value);
}

/* --- the header --------------------------------------------------------------------------------------------------- */

static void c_source_put_about(c_source *s)
{
    const lk_model_input *in = &s->network->input;
    lk__bytes_format(&s->out,
                     "images of %lldx%lldx%lld (channels, height, width), %lld classes, written by lockstep %s",
                     (long long)in->channels, (long long)in->height, (long long)in->width, (long long)in->classes,
                     lk_build_version());
}

static void c_source_put_prototypes(c_source *s)
{
    const char *weights = s->has_weights_file ? "const float *weights, " : "";
    static const char *const prototypes[] = {"void @_logits(%sconst float *image, float *scratch, float *logits);\n",
                                             "void @_logits_bytes(%sconst unsigned char *image, float *scratch, "
                                             "float *logits);\n",
                                             "int @_classify(%sconst float *image, float *scratch, "
                                             "float *probabilities);\n",
                                             "int @_classify_bytes(%sconst unsigned char *image, float *scratch, "
                                             "float *probabilities);\n"};
    for (size_t i = 0; i < sizeof prototypes / sizeof prototypes[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, prototypes[i], weights);
        c_source_put_template(s, text);
    }
}

static void c_source_put_header(c_source *s)
{
    const lk_model_input *in = &s->network->input;
    lk__bytes_text(&s->out, "/* An image-classification network: ");
    c_source_put_about(s);
    c_source_put_template(
        s, ".\n"
           " *\n"
           " * image: of functions without _bytes [channels, height, width] numbers from 0 to 1; of those with it "
           "bytes, the\n"
           " * channels of a pixel beside each other, [height, width, channels], as decoders of pictures give them.\n"
           " * scratch: as many floats as SCRATCH says, of the caller's; what they hold does not matter.\n"
           " * logits, probabilities: one for each class; probabilities may be NULL. classify gives the most probable "
           "class.\n"
           " * Nothing is allocated and nothing is kept: any number of threads may call, each with scratch memory of "
           "its own. */\n");
    c_source_put_upper_directive(s, "#ifndef ");
    lk__bytes_text(&s->out, "_H\n");
    c_source_put_upper_directive(s, "#define ");
    lk__bytes_text(&s->out, "_H\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    c_source_put_upper_define(s, "CHANNELS", in->channels);
    c_source_put_upper_define(s, "HEIGHT", in->height);
    c_source_put_upper_define(s, "WIDTH", in->width);
    c_source_put_upper_define(s, "CLASSES", in->classes);
    c_source_put_upper_define(s, "SCRATCH", s->plan.scratch);
    lk__bytes_char(&s->out, '\n');
    if (s->network->class_names)
        c_source_put_template(s, "extern const char *const @_class_names[];\n\n");
    if (s->has_weights_file)
        c_source_put_template(
            s, "/* Reads the weights, which the functions below need, from the file that was written beside this one.\n"
               " * Gives NULL, and in *weights what free() lets go of; or what is wrong with the file, in words. */\n"
               "const char *@_load(const char *path, float **weights);\n\n");
    c_source_put_prototypes(s);
    lk__bytes_text(&s->out, "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void c_source_put_weights(c_source *s)
{
    enum { A_LINE = 6 };
    lk__bytes_format(&s->out, "static const float weights[%lld] = {", (long long)s->plan.n_weights);
    for (int64_t i = 0; i < s->plan.n_weights; i++) {
        lk__bytes_text(&s->out, i % A_LINE == 0 ? "\n    " : " ");
        lk__c_put_number(&s->out, s->plan.weights[i]);
        lk__bytes_char(&s->out, ',');
    }
    lk__bytes_text(&s->out, "\n};\n\n");
}

/* FNV-1a, as hash() in the exported file. */
static uint64_t c_source_hash_weights(const lk_bytes *bytes)
{
    uint64_t h = 0xCBF29CE484222325;
    for (size_t i = 0; i < bytes->size; i++)
        h = (h ^ bytes->data[i]) * 0x100000001B3;
    return h;
}

static void c_source_put_loader(c_source *s)
{
    lk__bytes_format(&s->out, "enum { WEIGHTS = %lld };\n\n", (long long)s->plan.n_weights);
    lk__bytes_text(&s->out, lk__c_loader_text());
    c_source_put_template(s, "const char *@_load(const char *path, float **weights)\n"
                             "{\n"
                             "    const size_t size = (size_t)WEIGHTS * 4;\n"
                             "    FILE *file = fopen(path, \"rb\");\n"
                             "    *weights = NULL;\n"
                             "    if (!file)\n"
                             "        return \"the file with the weights cannot be opened\";\n"
                             "    float *values = malloc(size);\n"
                             "    const char *error = values ? NULL : \"there is no memory for the weights\";\n"
                             "    if (!error && fread(values, 1, size, file) != size)\n"
                             "        error = \"the file with the weights is too short, or cannot be read\";\n"
                             "    if (!error && fgetc(file) != EOF)\n"
                             "        error = \"the file with the weights is too long\";\n");
    lk__bytes_format(&s->out, "    if (!error && hash((const unsigned char *)values, size) != 0x%016" PRIX64 ")\n",
                     s->hash);
    c_source_put_template(s, "        error = \"the file holds weights of another network, or damaged ones\";\n"
                             "    fclose(file);\n"
                             "    if (error) {\n"
                             "        free(values);\n"
                             "        return error;\n"
                             "    }\n"
                             "    decode(values);\n"
                             "    *weights = values;\n"
                             "    return NULL;\n"
                             "}\n\n");
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void c_source_put_kernels(c_source *s)
{
    bool used[LK__C_KERNEL_COUNT] = {[LK__C_PREPARE] = true, [LK__C_PREPARE_BYTES] = true};
    for (int i = 0; i < s->plan.n; i++)
        used[s->plan.calls[i].kernel] = true;
    for (int k = 0; k < LK__C_KERNEL_COUNT; k++)
        if (used[k])
            lk__bytes_text(&s->out, lk__c_kernel_text((lk_c_kernel)k));
}

/* Writes a C string literal. Characters that could form an escape or a trigraph become octal escapes. */
static void c_source_put_string(lk_bytes *out, const char *text)
{
    lk__bytes_char(out, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || c == ' ' || c == '-' || c == '_' || c == '/' || c == '.' || c == ',')
            lk__bytes_char(out, (char)c);
        else
            lk__bytes_format(out, "\\%03o", c);
    }
    lk__bytes_char(out, '"');
}

static void c_source_put_class_names(c_source *s)
{
    if (!s->network->class_names)
        return;
    c_source_put_template(s, "const char *const @_class_names[] = {\n");
    for (int64_t i = 0; i < s->network->input.classes; i++) {
        lk__bytes_text(&s->out, "    ");
        c_source_put_string(&s->out, s->network->class_names[i] ? s->network->class_names[i] : "");
        lk__bytes_text(&s->out, ",\n");
    }
    lk__bytes_text(&s->out, "};\n\n");
}

static void c_source_put_entry_points(c_source *s, const char *suffix, const char *type, const char *kernel)
{
    static const char *const moments[] = {"weights", "weights", "scratch"};
    const char *weights = s->has_weights_file ? "const float *weights, " : "",
               *given = s->has_weights_file ? "weights, " : "";
    const lk_model_input *in = &s->network->input;
    char text[512];
    snprintf(text, sizeof text, "void @_logits%s(%sconst %s *image, float *scratch, float *logits)\n{\n    %s(image",
             suffix, weights, type, kernel);
    c_source_put_template(s, text);
    LK__C_PUT_NUMBERS(&s->out, in->height * in->width, in->channels);
    lk__bytes_text(&s->out, ", ");
    lk__c_put_offsets(&s->out, moments, (const int64_t[]){s->plan.mean, s->plan.divisor, s->plan.image}, 3);
    snprintf(text, sizeof text, ");\n    run(%sscratch, logits);\n}\n\n", given);
    c_source_put_template(s, text);
    snprintf(text, sizeof text,
             "int @_classify%s(%sconst %s *image, float *scratch, float *probabilities)\n{\n"
             "    float logits[%lld];\n    @_logits%s(%simage, scratch, logits);\n"
             "    return choose(logits, probabilities);\n}\n%s",
             suffix, weights, type, (long long)in->classes, suffix, given, *suffix ? "" : "\n");
    c_source_put_template(s, text);
}

/* The exported softmax subtracts the largest logit, which keeps expf() finite. */
static void c_source_put_choose(c_source *s)
{
    lk__bytes_format(&s->out,
                     "static int choose(const float *logits, float *probabilities)\n{\n"
                     "    int best = 0;\n    float sum = 0;\n"
                     "    for (int i = 1; i < %lld; i++)\n        best = logits[i] > logits[best] ? i : best;\n",
                     (long long)s->network->input.classes);
    lk__bytes_format(&s->out,
                     "    for (int i = 0; i < %lld && probabilities; i++)\n"
                     "        sum += probabilities[i] = expf(logits[i] - logits[best]);\n",
                     (long long)s->network->input.classes);
    lk__bytes_format(&s->out,
                     "    for (int i = 0; i < %lld && probabilities; i++)\n        probabilities[i] /= sum;\n"
                     "    return best;\n}\n\n",
                     (long long)s->network->input.classes);
}

static void c_source_put_source(c_source *s)
{
    lk__bytes_text(&s->out, "/* ");
    c_source_put_about(s);
    lk__bytes_text(&s->out, ".\n * Values are channels-last, [height, width, channels], inside. */\n#include \"");
    lk__bytes_text(&s->out, s->file);
    lk__bytes_text(&s->out, ".h\"\n\n#include <math.h>\n#include <stddef.h>\n");
    if (s->has_weights_file)
        lk__bytes_text(&s->out, "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n");
    lk__bytes_text(&s->out, "#include <string.h>\n\n");
    c_source_put_class_names(s);
    if (s->has_weights_file)
        c_source_put_loader(s);
    else if (s->plan.n_weights > 0)
        c_source_put_weights(s);
    c_source_put_kernels(s);
    c_source_put_template(s, s->has_weights_file
                                 ? "static void run(const float *weights, float *scratch, float *logits)\n{\n"
                                 : "static void run(float *scratch, float *logits)\n{\n");
    lk__c_put_calls(&s->out, s->network, &s->plan);
    lk__bytes_text(&s->out, "    memcpy(logits, ");
    lk__c_put_offset(&s->out, "scratch", s->plan.logits);
    lk__bytes_format(&s->out, ", %lld * sizeof(float));\n}\n\n", (long long)s->network->input.classes);
    c_source_put_choose(s);
    c_source_put_entry_points(s, "", "float", "prepare");
    c_source_put_entry_points(s, "_bytes", "unsigned char", "prepare_bytes");
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static lk_status c_source_write_file(c_source *s, lk_export_files *files, const char *ending)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", s->stem, ending) >= (int)sizeof path)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", s->stem);
    lk_status status = lk__export_put(files, path, &s->out);
    lk__bytes_clear(&s->out);
    return status;
}

/* Writes the source last, so that the files it needs exist. */
static lk_status c_source_write_files(c_source *s, lk_export_files *files)
{
    int64_t parameters = s->network->elements;
    s->has_weights_file = parameters > MAX_PARAMETERS_INSIDE;
    if (s->has_weights_file) {
        lk__put_floats(&s->out, s->plan.weights, (size_t)s->plan.n_weights);
        s->hash = c_source_hash_weights(&s->out);
        LK_TRY(c_source_write_file(s, files, ".weights"));
    }
    c_source_put_header(s);
    LK_TRY(c_source_write_file(s, files, ".h"));
    c_source_put_source(s);
    return c_source_write_file(s, files, ".c");
}

static lk_status c_source_write(const lk_network *network, const char *path, const lk_export_opts *opts)
{
    (void)opts;
    c_source s = {.network = network};
    LK_TRY(c_source_set_names(&s, path));
    LK_TRY(lk__c_plan_make(network, &s.plan));
    lk_export_files files = {0};
    lk_status status = lk__export_end(&files, c_source_write_files(&s, &files));
    lk__bytes_free(&s.out);
    lk__c_plan_free(&s.plan);
    return status;
}

const lk_export_writer lk__export_c = {.name = "c", .write = c_source_write};
