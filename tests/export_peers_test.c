/* Exported networks in the programs that they are made for: onnxruntime and TensorFlow, where Python has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "export_networks.h"

#include <libgen.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FOLDER_PATTERN "/tmp/lockstep-export-XXXXXX"

static char folder[] = FOLDER_PATTERN;
static char source_folder[512]; /* tests/ of the source tree */

static int shell(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static const char *path_of(const export_case *c, const char *file)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s/%s", folder, c->name, file);
    return path;
}

static void write_values(const char *path, const float *values, int64_t count)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(values, sizeof *values, (size_t)count, stream), count);
    assert_int_equal(fclose(stream), 0);
}

static void write_about(const export_case *c, const exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    FILE *stream = fopen(path_of(c, "about.json"), "w");
    assert_non_null(stream);
    fprintf(stream, "{\"images\": [%lld, %lld, %lld, %lld], \"classes\": %lld}\n", (long long)e->n,
            (long long)in.channels, (long long)in.height, (long long)in.width, (long long)in.classes);
    assert_int_equal(fclose(stream), 0);
    write_values(path_of(c, "images"), e->images, e->n * in.channels * in.height * in.width);
    write_values(path_of(c, "logits"), e->logits, e->n * in.classes);
}

static void export_to_folder(const export_case *c, lk_export_format format, bool external_data)
{
    const lk_export_opts opts = {.external_data = external_data};
    assert_int_equal(mkdir(path_of(c, ""), 0777), 0);
    lk_scope_begin();
    exported e = open_exported(c, folder);
    write_about(c, &e);
    assert_no_error(lk_export(&e.source, format, path_of(c, "network"), &opts) == LK_OK);
    close_exported(&e);
    lk_scope_end();
}

/* Exit status 77: Python has not what it takes. */
static void check(lk_export_format format)
{
    char command[2048];
    const char *interpreter = getenv("PYTHON");
    snprintf(command, sizeof command, "'%s' '%s/export/check_export.py' %s '%s'", interpreter ? interpreter : "python3",
             source_folder, lk_export_format_name(format), folder);
    fflush(stdout);
    int status = shell(command);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void check_all(lk_export_format format)
{
    for (int i = 0; i < EXPORT_CASES; i++)
        export_to_folder(&export_cases[i], format, false);
    check(format);
}

static void onnx(void **state)
{
    (void)state;
    check_all(LK_EXPORT_ONNX);
}

static void onnx_with_weights_beside(void **state)
{
    (void)state;
    export_to_folder(export_case_of("every-layer"), LK_EXPORT_ONNX, true);
    check(LK_EXPORT_ONNX);
}

static void savedmodel(void **state)
{
    (void)state;
    check_all(LK_EXPORT_SAVEDMODEL);
}

static int make_folder(void **state)
{
    (void)state;
    memcpy(folder, FOLDER_PATTERN, sizeof folder);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return shell(command);
}

int main(void)
{
    char file[] = __FILE__;
    snprintf(source_folder, sizeof source_folder, "%s", dirname(file));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(onnx, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(onnx_with_weights_beside, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(savedmodel, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
