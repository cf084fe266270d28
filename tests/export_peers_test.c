/* Exported networks in the programs that they are made for: onnxruntime, where Python has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "export_networks.h"

#include <libgen.h>
#include <sys/wait.h>

#define FOLDER_PATTERN "/tmp/lockstep-export-XXXXXX"

static char folder[] = FOLDER_PATTERN;
static char source_folder[512]; /* tests/ of the source tree */
static bool external_data;

static int shell(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static const char *python(void)
{
    const char *interpreter = getenv("PYTHON");
    return interpreter ? interpreter : "python3";
}

static const char *path_of(const char *file)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static void write_values(const char *file, const float *values, int64_t count)
{
    FILE *stream = fopen(path_of(file), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(values, sizeof *values, (size_t)count, stream), count);
    assert_int_equal(fclose(stream), 0);
}

static void write_about(const exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    FILE *stream = fopen(path_of("about.json"), "w");
    assert_non_null(stream);
    fprintf(stream, "{\"images\": [%lld, %lld, %lld, %lld], \"classes\": %lld}\n", (long long)e->n,
            (long long)in.channels, (long long)in.height, (long long)in.width, (long long)in.classes);
    assert_int_equal(fclose(stream), 0);
    write_values("images", e->images, e->n * in.channels * in.height * in.width);
    write_values("logits", e->logits, e->n * in.classes);
}

static void check(const export_case *c, lk_export_format format)
{
    char command[2048];
    lk_scope_begin();
    exported e = open_exported(c, folder);
    write_about(&e);
    const lk_export_opts opts = {.external_data = external_data};
    printf("%s\n", c->name);
    assert_no_error(lk_export(&e.source, format, path_of("network"), &opts) == LK_OK);
    snprintf(command, sizeof command, "'%s' '%s/export/check_export.py' %s '%s/network' '%s'", python(), source_folder,
             lk_export_format_name(format), folder, folder);
    fflush(stdout);
    int status = shell(command);
    snprintf(command, sizeof command, "rm -rf '%s/network'", folder);
    assert_int_equal(shell(command), 0);
    close_exported(&e);
    lk_scope_end();
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void onnx(void **state)
{
    (void)state;
    for (int i = 0; i < EXPORT_CASES; i++)
        check(&export_cases[i], LK_EXPORT_ONNX);
}

static void onnx_with_weights_beside(void **state)
{
    (void)state;
    external_data = true;
    check(&export_cases[5], LK_EXPORT_ONNX);
    external_data = false;
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
