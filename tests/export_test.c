/* Exports without the programs that they are for: the bytes of a small network, which export_peers_test has tried; and
 * what cannot be exported or written, which leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "export_networks.h"
#include "lockstep/build.h"

#include <dirent.h>
#include <libgen.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char source_folder[512]; /* tests/ of the source tree */

static int entries(void)
{
    int count = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count - 2;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

typedef struct contents {
    unsigned char *data;
    size_t size;
} contents;

static contents read_file(const char *path)
{
    struct stat about;
    contents c;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &about) != 0)
        fail_msg("%s cannot be read", path);
    c.size = (size_t)about.st_size;
    c.data = malloc(c.size + 1);
    assert_non_null(c.data);
    assert_int_equal(fread(c.data, 1, c.size, file), c.size);
    fclose(file);
    return c;
}

/* The library's version becomes a word, and its length before it, which protobuf writes, that word's. */
static void forget_version(contents *c)
{
    static const char word[] = "VERSION";
    const char *version = lk_build_version();
    size_t length = strlen(version), size = strlen(word);
    unsigned char *at = memmem(c->data, c->size, version, length), *grown = malloc(c->size + size);
    assert_non_null(at);
    assert_non_null(grown);
    size_t before = (size_t)(at - c->data), after = c->size - before - length;
    memcpy(grown, c->data, before);
    memcpy(grown + before, word, size);
    memcpy(grown + before + size, at + length, after);
    if (grown[before - 1] == length)
        grown[before - 1] = (unsigned char)size;
    free(c->data);
    *c = (contents){grown, before + size + after};
}

/* Values that are the same wherever this runs. */
static void set_values(exported *e)
{
    for (int v = 0; v < lk_model_variable_count(e->net.model); v++) {
        const char *name = lk_model_variable_name(e->net.model, v);
        bool positive = strstr(name, ".running_var") != NULL;
        for (int64_t i = 0; i < lk_shape_count(lk_model_variable_shape(e->net.model, v)); i++) {
            float value = (float)((i * 7919 + v * 104729) % 2001 - 1000) / 1024;
            e->values[v][i] = positive ? fabsf(value) + 0.25f : value;
        }
    }
}

/* $LOCKSTEP_KEEP_EXPORTS: keeps what is there instead; export_peers_test has to pass before that. */
static void compare(const char *have_path, const char *name, bool has_version)
{
    char want_path[600];
    snprintf(want_path, sizeof want_path, "%s/data/export/%s", source_folder, name);
    contents have = read_file(have_path);
    if (has_version)
        forget_version(&have);
    if (getenv("LOCKSTEP_KEEP_EXPORTS"))
        write_file(want_path, have.data, have.size);
    contents want = read_file(want_path);
    assert_int_equal(have.size, want.size);
    assert_memory_equal(have.data, want.data, have.size);
    free(have.data);
    free(want.data);
}

static void test_bytes(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    set_values(&e);
    assert_no_error(lk_export(&e.source, LK_EXPORT_ONNX, path_of("every-kind.onnx"), NULL) == LK_OK);
    compare(path_of("every-kind.onnx"), "every-kind.onnx", true);
    assert_no_error(lk_export(&e.source, LK_EXPORT_SAVEDMODEL, path_of("saved"), NULL) == LK_OK);
    compare(path_of("saved/saved_model.pb"), "every-kind.pb", false);
    assert_no_error(lk_export(&e.source, LK_EXPORT_C, path_of("every-kind.c"), NULL) == LK_OK);
    compare(path_of("every-kind.c"), "every-kind.c.txt", true);
    assert_int_equal(entries(), 4);
    close_exported(&e);
    lk_scope_end();
}

/* Weights beside the file are those that would stand in it, each where the file says. */
static void test_external_data(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    assert_no_error(
        lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), &(lk_export_opts){.external_data = true}) == LK_OK);
    contents data = read_file(path_of("net.onnx.data")), model = read_file(path_of("net.onnx"));
    assert_non_null(memmem(model.data, model.size, "net.onnx.data", strlen("net.onnx.data")));
    int n = lk_model_variable_count(e.net.model);
    assert_true(data.size % 4096 == 0 && data.size >= (size_t)n * 4096);
    for (int v = 0; v < n; v++) {
        size_t bytes = (size_t)lk_shape_count(lk_model_variable_shape(e.net.model, v)) * sizeof(float);
        const unsigned char *at = memmem(data.data, data.size, e.values[v], bytes);
        assert_non_null(at);
        assert_null(memmem(model.data, model.size, e.values[v], bytes));
    }
    free(data.data);
    free(model.data);
    close_exported(&e);
    lk_scope_end();
}

static void test_safetensors(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    e.values[0][0] = NAN; /* which weights that are looked at elsewhere may be */
    assert_no_error(lk_export(&e.source, LK_EXPORT_SAFETENSORS, path_of("net.safetensors"), NULL) == LK_OK);
    contents file = read_file(path_of("net.safetensors"));
    for (int v = 0; v < lk_model_variable_count(e.net.model); v++) {
        const char *name = lk_model_variable_name(e.net.model, v);
        size_t bytes = (size_t)lk_shape_count(lk_model_variable_shape(e.net.model, v)) * sizeof(float);
        assert_non_null(memmem(file.data, file.size, name, strlen(name)));
        assert_non_null(memmem(file.data, file.size, e.values[v], bytes));
    }
    free(file.data);
    close_exported(&e);
    lk_scope_end();
}

/* --- what cannot be ----------------------------------------------------------------------------------------------- */

static void refuse(const lk_export_network *source, lk_export_format format, const char *path, lk_status status,
                   const char *message)
{
    int before = entries();
    assert_int_equal(lk_export(source, format, path, NULL), status);
    assert_error(status, message);
    assert_int_equal(entries(), before);
}

static void test_networks_that_cannot_be_exported(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    lk_export_network source = e.source;
    source.mean = NULL;
    refuse(&source, LK_EXPORT_ONNX, path_of("x"), LK_ERR_ARGUMENT, "need mean and deviation of each channel");
    const double infinite[] = {0.5, (double)INFINITY};
    source.mean = infinite;
    refuse(&source, LK_EXPORT_ONNX, path_of("x"), LK_ERR_ARGUMENT, "channel 1 has mean inf");
    e.values[2][1] = INFINITY;
    refuse(&e.source, LK_EXPORT_C, path_of("x.c"), LK_ERR_ARGUMENT,
           "has the value inf at 1; a network that is exported has finite ones");
    assert_int_equal(
        lk_export(&e.source, LK_EXPORT_SAFETENSORS, path_of("x"), &(lk_export_opts){.names = LK_EXPORT_NAMES_TORCH}),
        LK_ERR_UNSUPPORTED);
    assert_error(LK_ERR_UNSUPPORTED, "has no names of PyTorch; the reference models have");
    refuse(&e.source, LK_EXPORT_FORMAT_COUNT, path_of("x"), LK_ERR_ARGUMENT, "there is no format");
    refuse(&e.source, LK_EXPORT_ONNX, "", LK_ERR_ARGUMENT, "is empty");
    close_exported(&e);
    lk_scope_end();
}

static void test_models_that_cannot_be_exported(void **state)
{
    (void)state;
    const lk_model_input no_classes = {1, 4, 4, 0};
    lk_scope_begin();
    network net = open_layers(LK_SEQUENTIAL(lk_layer_flatten()), no_classes);
    lk_export_network source = {.model = net.model, .variables = (const float *const[]){NULL}};
    refuse(&source, LK_EXPORT_ONNX, path_of("x"), LK_ERR_UNSUPPORTED, "it gives no logits of classes");
    close_network(&net);
    lk_scope_end();
}

static void convolution_without_weight(const void *config, lk_node *node)
{
    (void)config;
    *node = (lk_node){.kind = LK_NODE_CONV2D, .kernel = 3, .stride = 1};
}

static lk_tensor *same(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call, (void)config;
    return x;
}

static void test_layers_that_describe_themselves_wrongly(void **state)
{
    (void)state;
    static const lk_layer_table table = {.kind = "odd", .forward = same, .describe = convolution_without_weight};
    lk_scope_begin();
    network net = open_layers(LK_SEQUENTIAL(lk_layer_new(&table, NULL, 0, NULL, 0), lk_layer_flatten()),
                              (lk_model_input){1, 1, 2, 2});
    lk_export_network source = {.model = net.model, .variables = (const float *const[]){NULL}};
    refuse(&source, LK_EXPORT_C, path_of("x.c"), LK_ERR_UNSUPPORTED,
           "layer 'odd' describes itself as something that its variables do not fit");
    close_network(&net);
    lk_scope_end();
}

/* --- what cannot be written --------------------------------------------------------------------------------------- */

static const char *const names[LK_EXPORT_FORMAT_COUNT] = {"net.safetensors", "net.onnx", "net", "net.c"};

static void test_places_that_cannot_be_written(void **state)
{
    (void)state;
    char path[700], long_path[5000];
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    memset(long_path, 'x', sizeof long_path);
    memcpy(long_path + sizeof long_path - 3, ".c", 3);
    for (int format = 0; format < LK_EXPORT_FORMAT_COUNT; format++) {
        snprintf(path, sizeof path, "%s/missing/%s", folder, names[format]);
        refuse(&e.source, (lk_export_format)format, path, LK_ERR_IO, "No such file or directory");
        refuse(&e.source, (lk_export_format)format, long_path, LK_ERR_ARGUMENT, "the path is too long");
    }
    refuse(&e.source, LK_EXPORT_C, path_of("String.c"), LK_ERR_ARGUMENT,
           "its header would stand in the place of <string.h>");
    assert_int_equal(mkdir(path_of("there"), 0777), 0);
    refuse(&e.source, LK_EXPORT_SAVEDMODEL, path_of("there"), LK_ERR_IO,
           "is there already; a SavedModel is written to a new folder");
    refuse(&e.source, LK_EXPORT_ONNX, path_of("there"), LK_ERR_IO, "Is a directory");
    close_exported(&e);
    lk_scope_end();
}

static void put_text(const char *name, const char *text)
{
    write_file(path_of("%s", name), text, strlen(text));
}

static void assert_text(const char *name, const char *text)
{
    contents file = read_file(path_of("%s", name));
    assert_int_equal(file.size, strlen(text));
    assert_memory_equal(file.data, text, file.size);
    free(file.data);
}

/* Nothing but what is asked for is touched: neither names that a temporary file might have, nor what is no file. */
static void test_what_is_beside(void **state)
{
    (void)state;
    struct stat about;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    assert_int_equal(mkdir(path_of("net.tmp"), 0777), 0);
    put_text("net.tmp/kept", "mine");
    put_text("net.onnx.tmp", "mine");
    assert_no_error(lk_export(&e.source, LK_EXPORT_SAVEDMODEL, path_of("net///"), NULL) == LK_OK);
    assert_no_error(lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), NULL) == LK_OK);
    assert_text("net.tmp/kept", "mine");
    assert_text("net.onnx.tmp", "mine");
    assert_int_equal(stat(path_of("net/saved_model.pb"), &about), 0);
    assert_int_equal(entries(), 4);

    assert_int_equal(mkfifo(path_of("pipe"), 0666), 0);
    refuse(&e.source, LK_EXPORT_ONNX, path_of("pipe"), LK_ERR_IO, "it is no file whose place another could take");
    assert_int_equal(stat(path_of("pipe"), &about), 0);
    assert_true(S_ISFIFO(about.st_mode));

    put_text("target", "old");
    assert_int_equal(symlink("target", path_of("link")), 0);
    assert_no_error(lk_export(&e.source, LK_EXPORT_ONNX, path_of("link"), NULL) == LK_OK);
    assert_int_equal(lstat(path_of("link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(path_of("target"), &about), 0);
    assert_true(about.st_size > 1000);
    close_exported(&e);
    lk_scope_end();
}

/* Where one of several files cannot be written the others stay as they were. */
static void test_files_that_belong_together(void **state)
{
    (void)state;
    static const lk_export_opts beside = {.external_data = true};
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    put_text("net.h", "old");
    assert_int_equal(mkdir(path_of("net.c"), 0777), 0);
    refuse(&e.source, LK_EXPORT_C, path_of("net.c"), LK_ERR_IO, "Is a directory");
    assert_text("net.h", "old");
    put_text("net.onnx.data", "old");
    assert_int_equal(mkdir(path_of("net.onnx"), 0777), 0);
    assert_int_equal(lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), &beside), LK_ERR_IO);
    assert_error(LK_ERR_IO, "Is a directory");
    assert_text("net.onnx.data", "old");
    assert_int_equal(entries(), 4);
    close_exported(&e);
    lk_scope_end();
}

/* What was there stays, whole, where a disk is full. */
static void test_full_disks(void **state)
{
    (void)state;
    struct rlimit before, small;
    static const char old[] = "old";
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int format = 0; format < LK_EXPORT_FORMAT_COUNT; format++) {
        if (format != LK_EXPORT_SAVEDMODEL)
            write_file(path_of("%s", names[format]), old, strlen(old));
        int there = entries();
        small = (struct rlimit){.rlim_cur = 512, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        lk_status status = lk_export(&e.source, (lk_export_format)format, path_of("%s", names[format]), NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, LK_ERR_IO);
        assert_error(LK_ERR_IO, "File too large");
        assert_int_equal(entries(), there);
        if (format != LK_EXPORT_SAVEDMODEL) {
            contents file = read_file(path_of("%s", names[format]));
            assert_int_equal(file.size, strlen(old));
            free(file.data);
        }
    }
    signal(SIGXFSZ, SIG_DFL);
    close_exported(&e);
    lk_scope_end();
}

/* Of its allocations the first fails, then the second, until none does. */
static void fail_each_allocation(const exported *e, lk_export_format format, const lk_export_opts *opts)
{
    for (int64_t n = 0;; n++) {
        lk__mem_fail_at(n);
        lk_status status = lk_export(&e->source, format, path_of("%s", names[format]), opts);
        lk__mem_fail_at(-1);
        if (status == LK_OK) {
            assert_true(n > 2);
            return;
        }
        assert_int_equal(status, LK_ERR_MEMORY);
        lk_error_clear();
    }
}

static void test_failed_allocations(void **state)
{
    (void)state;
    static const lk_export_opts beside = {.external_data = true}, pytorch = {.names = LK_EXPORT_NAMES_TORCH};
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind")), lenet = open_exported(export_case_of("lenet"));
    for (int format = 0; format < LK_EXPORT_FORMAT_COUNT; format++)
        fail_each_allocation(&e, (lk_export_format)format, &beside);
    fail_each_allocation(&lenet, LK_EXPORT_SAFETENSORS, &pytorch);
    /* safetensors, ONNX with its weights, SavedModel, C with its header: none that was begun. */
    assert_int_equal(entries(), 6);
    close_exported(&lenet);
    close_exported(&e);
    lk_scope_end();
}

int main(void)
{
    char file[] = __FILE__;
    snprintf(source_folder, sizeof source_folder, "%s", dirname(file));
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_bytes),
        FOLDER_TEST(test_external_data),
        FOLDER_TEST(test_safetensors),
        FOLDER_TEST(test_networks_that_cannot_be_exported),
        FOLDER_TEST(test_models_that_cannot_be_exported),
        FOLDER_TEST(test_layers_that_describe_themselves_wrongly),
        FOLDER_TEST(test_places_that_cannot_be_written),
        FOLDER_TEST(test_what_is_beside),
        FOLDER_TEST(test_files_that_belong_together),
        FOLDER_TEST(test_full_disks),
        FOLDER_TEST(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
