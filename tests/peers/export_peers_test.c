/* Exported networks run in onnxruntime, TensorFlow, safetensors and PyTorch, if Python has these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "export_networks.h"

#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>

static char source_folder[PATH_MAX]; /* the folder of this file */

static void write_about(const export_case *c, const exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    FILE *stream = fopen(path_of("%s/about.json", c->name), "w");
    assert_non_null(stream);
    fprintf(stream, "{\"images\": [%lld, %lld, %lld, %lld], \"classes\": %lld, \"variables\": [", (long long)e->n,
            (long long)in.channels, (long long)in.height, (long long)in.width, (long long)in.classes);
    for (int v = 0; v < lk_model_variable_count(e->net.model); v++) {
        lk_shape shape = lk_model_variable_shape(e->net.model, v);
        fprintf(stream, "%s[\"%s\", [", v ? ", " : "", lk_model_variable_name(e->net.model, v));
        for (int i = 0; i < shape.ndim; i++)
            fprintf(stream, "%s%lld", i ? ", " : "", (long long)shape.dim[i]);
        fputs("]]", stream);
    }
    fputs("]}\n", stream);
    assert_int_equal(fclose(stream), 0);
    stream = fopen(path_of("%s/variables", c->name), "wb");
    assert_non_null(stream);
    for (int v = 0; v < lk_model_variable_count(e->net.model); v++) {
        size_t count = (size_t)lk_shape_count(lk_model_variable_shape(e->net.model, v));
        assert_int_equal(fwrite(e->values[v], sizeof(float), count, stream), count);
    }
    assert_int_equal(fclose(stream), 0);
    put_bytes(path_of("%s/images", c->name), e->images,
              (size_t)(e->n * in.channels * in.height * in.width) * sizeof(float));
    put_bytes(path_of("%s/logits", c->name), e->logits, (size_t)(e->n * in.classes) * sizeof(float));
}

static void export_to_folder(const export_case *c, lk_export_format format, const lk_export_opts *opts)
{
    assert_int_equal(mkdir(path_of("%s", c->name), 0777), 0);
    lk_scope_begin();
    exported e = open_exported(c);
    write_about(c, &e);
    assert_no_error(lk_export(&e.source, format, path_of("%s/network", c->name), opts) == LK_OK);
    close_exported(&e);
    lk_scope_end();
}

/* Exit status 77: Python lacks the modules. */
static void check(lk_export_format format)
{
    const char *interpreter = getenv("PYTHON");
    int status = shell("'%s' '%s/export/check_export.py' %s .", interpreter ? interpreter : "python3", source_folder,
                       lk_export_format_name(format));
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void check_all(lk_export_format format)
{
    for (int i = 0; i < EXPORT_CASES; i++)
        export_to_folder(&export_cases[i], format, NULL);
    check(format);
}

static void onnx(void **state)
{
    (void)state;
    check_all(LK_EXPORT_ONNX);
}

static void onnx_with_external_weights(void **state)
{
    (void)state;
    export_to_folder(export_case_of("every-layer"), LK_EXPORT_ONNX, &(lk_export_opts){.external_data = true});
    check(LK_EXPORT_ONNX);
}

static void savedmodel(void **state)
{
    (void)state;
    check_all(LK_EXPORT_SAVEDMODEL);
}

static void savedmodel_of_channels_last(void **state)
{
    (void)state;
    static const lk_export_opts opts = {.channels_last = true, .signature = "classify"};
    for (int i = 0; i < EXPORT_CASES; i++)
        export_to_folder(&export_cases[i], LK_EXPORT_SAVEDMODEL, &opts);
    check(LK_EXPORT_SAVEDMODEL);
}

static void safetensors(void **state)
{
    (void)state;
    check_all(LK_EXPORT_SAFETENSORS);
}

int main(void)
{
    char file[] = __FILE__;
    if (!realpath(dirname(file), source_folder))
        return 1;
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(onnx),        FOLDER_TEST(onnx_with_external_weights),
        FOLDER_TEST(savedmodel),  FOLDER_TEST(savedmodel_of_channels_last),
        FOLDER_TEST(safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
