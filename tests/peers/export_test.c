/* Exports without the programs that read them. The bytes of a small network are compared with files that
 * export_peers_test has checked. Networks that cannot be exported and files that cannot be written leave nothing
 * behind.
 */
#include "export_networks.h"
#include "base/mem_testing.h"
#include "lockstep/build.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int entries(void)
{
    int count = 0;
    DIR *stream = opendir(test_dir);
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

static contents whole_file(const char *path)
{
    contents c;
    c.data = contents_of(path, &c.size);
    return c;
}

/* Replaces the library's version with a fixed word, and the length that protobuf writes before it. */
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

/* Fixed values, the same on every machine. */
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

/* With $LOCKSTEP_KEEP_EXPORTS it first replaces the kept file; export_peers_test must pass before that. */
static void compare(const char *have_path, const char *name, bool has_version)
{
    char want_path[600];
    snprintf(want_path, sizeof want_path, "%s/export/%s", LK_TEST_DATA, name);
    contents have = whole_file(have_path);
    if (has_version)
        forget_version(&have);
    if (getenv("LOCKSTEP_KEEP_EXPORTS"))
        put_bytes(want_path, have.data, have.size);
    contents want = whole_file(want_path);
    assert_int_equal(have.size, want.size);
    assert_memory_equal(have.data, want.data, have.size);
    free(have.data);
    free(want.data);
}

static void files_have_the_kept_bytes(void **state)
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

/* External data holds the weights, each at a multiple of 4096 bytes, and the model file does not. */
static void external_data_holds_the_weights(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    assert_no_error(
        lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), &(lk_export_opts){.external_data = true}) == LK_OK);
    contents data = whole_file(path_of("net.onnx.data")), model = whole_file(path_of("net.onnx"));
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

/* Counts the values that the ONNX file defines with this name of less than 128 bytes: outputs of nodes (field 2) and
 * weights (field 8). */
static int onnx_definitions(const contents *file, const char *name)
{
    int count = 0;
    char field[130];
    for (int i = 0; i < 2; i++) {
        int size = snprintf(field, sizeof field, "%c%c%s", i == 0 ? 0x12 : 0x42, (int)strlen(name), name);
        const unsigned char *at = file->data, *end = at + file->size;
        while ((at = memmem(at, (size_t)(end - at), field, (size_t)size))) {
            at += size;
            count++;
        }
    }
    return count;
}

static void names_are_unique(void **state)
{
    (void)state;
    char letters[512], text[700];
    memset(letters, 'a', sizeof letters - 1);
    letters[sizeof letters - 1] = '\0';
    lk_scope_begin();
    exported e = open_exported(export_case_of("odd-names"));
    assert_no_error(lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), NULL) == LK_OK);
    contents file = whole_file(path_of("net.onnx"));
    assert_int_equal(onnx_definitions(&file, "images/mean"), 1);
    assert_int_equal(onnx_definitions(&file, "images/centered"), 1);
    free(file.data);
    close_exported(&e);

    /* A SavedModel's constants have the whole names of variables. */
    snprintf(text, sizeof text, "flatten\n%s: dense classes\n", letters);
    e = open_exported(&(export_case){"long-name", text, {1, 3, 3, 3}, .images = 2});
    assert_no_error(lk_export(&e.source, LK_EXPORT_SAVEDMODEL, path_of("saved"), NULL) == LK_OK);
    file = whole_file(path_of("saved/saved_model.pb"));
    assert_non_null(memmem(file.data, file.size, "aaa.weight", strlen("aaa.weight")));
    assert_non_null(memmem(file.data, file.size, "aaa.bias", strlen("aaa.bias")));
    free(file.data);
    close_exported(&e);
    lk_scope_end();
}

static void safetensors_hold_all_variables(void **state)
{
    (void)state;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    e.values[0][0] = NAN; /* safetensors allows it, the other formats do not */
    assert_no_error(lk_export(&e.source, LK_EXPORT_SAFETENSORS, path_of("net.safetensors"), NULL) == LK_OK);
    contents file = whole_file(path_of("net.safetensors"));
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

/* --- networks that cannot be exported
 * ----------------------------------------------------------------------------------------------- */

static void refuse(const lk_export_network *source, lk_export_format format, const char *path, lk_status status,
                   const char *message)
{
    int before = entries();
    assert_int_equal(lk_export(source, format, path, NULL), status);
    assert_error(status, message);
    assert_int_equal(entries(), before);
}

static void unsuitable_networks_are_refused(void **state)
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
    refuse(&e.source, LK_EXPORT_C, path_of("x.c"), LK_ERR_NUMERIC,
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

static void unsuitable_models_are_refused(void **state)
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
    *node = (lk_node){.kind = LK_NODE_CONV2D, .kernel = {3, 3}, .stride = {1, 1}};
}

static lk_tensor *same(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call, (void)config;
    return x;
}

static void layers_with_a_wrong_description_are_refused(void **state)
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

/* --- files that cannot be written
 * --------------------------------------------------------------------------------------- */

static const char *const names[LK_EXPORT_FORMAT_COUNT] = {"net.safetensors", "net.onnx", "net", "net.c"};

static void unwritable_paths_are_refused(void **state)
{
    (void)state;
    char path[700], long_path[5000];
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    memset(long_path, 'x', sizeof long_path);
    memcpy(long_path + sizeof long_path - 3, ".c", 3);
    for (int format = 0; format < LK_EXPORT_FORMAT_COUNT; format++) {
        snprintf(path, sizeof path, "%s/missing/%s", test_dir, names[format]);
        refuse(&e.source, (lk_export_format)format, path, LK_ERR_IO, "No such file or directory");
        refuse(&e.source, (lk_export_format)format, long_path, LK_ERR_ARGUMENT, "the path is too long");
    }
    refuse(&e.source, LK_EXPORT_C, path_of("String.c"), LK_ERR_ARGUMENT,
           "its header would stand in the place of <string.h>");
    refuse(&e.source, LK_EXPORT_C, path_of("int.c"), LK_ERR_ARGUMENT, "C has the macro that its header would define");
    refuse(&e.source, LK_EXPORT_C, path_of("int8.c"), LK_ERR_ARGUMENT, "C has the macro that its header would define");
    refuse(&e.source, LK_EXPORT_C, path_of("Sig-Atomic.c"), LK_ERR_ARGUMENT, "C has the macro that its header would");
    assert_int_equal(mkdir(path_of("there"), 0777), 0);
    refuse(&e.source, LK_EXPORT_SAVEDMODEL, path_of("there"), LK_ERR_IO,
           "is there already; a SavedModel is written to a new folder");
    refuse(&e.source, LK_EXPORT_ONNX, path_of("there"), LK_ERR_IO, "Is a directory");
    close_exported(&e);
    lk_scope_end();
}

static void put_text(const char *name, const char *text)
{
    put_bytes(path_of("%s", name), text, strlen(text));
}

static void assert_text(const char *name, const char *text)
{
    contents file = whole_file(path_of("%s", name));
    assert_int_equal(file.size, strlen(text));
    assert_memory_equal(file.data, text, file.size);
    free(file.data);
}

/* An export touches no other file, not even one with a likely temporary name. It refuses to replace a pipe, and writes
 * through a link. */
static void other_files_stay(void **state)
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

/* The data lie beside the model, not beside the link, or readers of the model would not find them. */
static void external_data_follow_a_link(void **state)
{
    (void)state;
    static const lk_export_opts external = {.external_data = true};
    struct stat about;
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    assert_int_equal(mkdir(path_of("store"), 0777), 0);
    put_text("store/v3.onnx", "old");
    assert_int_equal(symlink("store/v3.onnx", path_of("now.onnx")), 0);
    assert_no_error(lk_export(&e.source, LK_EXPORT_ONNX, path_of("now.onnx"), &external) == LK_OK);
    contents model = whole_file(path_of("store/v3.onnx"));
    assert_non_null(memmem(model.data, model.size, "v3.onnx.data", strlen("v3.onnx.data")));
    free(model.data);
    assert_int_equal(stat(path_of("store/v3.onnx.data"), &about), 0);
    assert_int_equal(entries(), 2);
    close_exported(&e);
    lk_scope_end();
}

/* If one of several files cannot be written, the others stay as they were. */
static void files_are_replaced_together(void **state)
{
    (void)state;
    static const lk_export_opts external = {.external_data = true};
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind"));
    put_text("net.h", "old");
    assert_int_equal(mkdir(path_of("net.c"), 0777), 0);
    refuse(&e.source, LK_EXPORT_C, path_of("net.c"), LK_ERR_IO, "Is a directory");
    assert_text("net.h", "old");
    put_text("net.onnx.data", "old");
    assert_int_equal(mkdir(path_of("net.onnx"), 0777), 0);
    assert_int_equal(lk_export(&e.source, LK_EXPORT_ONNX, path_of("net.onnx"), &external), LK_ERR_IO);
    assert_error(LK_ERR_IO, "Is a directory");
    assert_text("net.onnx.data", "old");
    assert_int_equal(entries(), 4);
    close_exported(&e);
    lk_scope_end();
}

/* If the disk is full, the old files stay complete. */
static void full_disks_leave_the_old_files(void **state)
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
            put_bytes(path_of("%s", names[format]), old, strlen(old));
        int there = entries();
        small = (struct rlimit){.rlim_cur = 512, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        lk_status status = lk_export(&e.source, (lk_export_format)format, path_of("%s", names[format]), NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, LK_ERR_IO);
        assert_error(LK_ERR_IO, "File too large");
        assert_int_equal(entries(), there);
        if (format != LK_EXPORT_SAVEDMODEL) {
            contents file = whole_file(path_of("%s", names[format]));
            assert_int_equal(file.size, strlen(old));
            free(file.data);
        }
    }
    signal(SIGXFSZ, SIG_DFL);
    close_exported(&e);
    lk_scope_end();
}

static void fail_each_allocation(const exported *e, lk_export_format format, const lk_export_opts *opts)
{
    int rounds = 0;
    for (failing f = fail_every(1); fail_next(&f); rounds++) {
        stop_failing_with(&f, lk_export(&e->source, format, path_of("%s", names[format]), opts));
    }
    assert_true(rounds > 3);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const lk_export_opts external = {.external_data = true}, pytorch = {.names = LK_EXPORT_NAMES_TORCH};
    lk_scope_begin();
    exported e = open_exported(export_case_of("every-kind")), lenet = open_exported(export_case_of("lenet"));
    for (int format = 0; format < LK_EXPORT_FORMAT_COUNT; format++)
        fail_each_allocation(&e, (lk_export_format)format, &external);
    fail_each_allocation(&lenet, LK_EXPORT_SAFETENSORS, &pytorch);
    /* One safetensors file, ONNX and its weights, SavedModel, C and its header; no unfinished files. */
    assert_int_equal(entries(), 6);
    close_exported(&lenet);
    close_exported(&e);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(files_have_the_kept_bytes),
        FOLDER_TEST(external_data_holds_the_weights),
        FOLDER_TEST(names_are_unique),
        FOLDER_TEST(safetensors_hold_all_variables),
        FOLDER_TEST(unsuitable_networks_are_refused),
        FOLDER_TEST(unsuitable_models_are_refused),
        FOLDER_TEST(layers_with_a_wrong_description_are_refused),
        FOLDER_TEST(unwritable_paths_are_refused),
        FOLDER_TEST(other_files_stay),
        FOLDER_TEST(external_data_follow_a_link),
        FOLDER_TEST(files_are_replaced_together),
        FOLDER_TEST(full_disks_leave_the_old_files),
        FOLDER_TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
