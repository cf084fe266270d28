/* Runs modules and copies buffers through a real plug-in, that of $LOCKSTEP_PJRT_TEST_PLUGIN. */
#include "pjrt/pjrt_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static lk_pjrt_session *session;

static void check(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s", lk_error_message());
}

static lk_pjrt_buffer *upload(int device, const float *data, int64_t count)
{
    lk_pjrt_buffer *buffer = NULL;
    check(lk__pjrt_upload(session, device, LK_F32, count, data, &buffer));
    return buffer;
}

static lk_pjrt_module *compile(const char *text)
{
    lk_pjrt_module *module = NULL;
    check(lk__pjrt_module_compile(session, text, strlen(text), &module));
    return module;
}

static const char convolution[] = "module @m {\n"
                                  "  func.func @main(%a: tensor<18xf32>, %b: tensor<4xf32>) -> tensor<8xf32> {\n"
                                  "    %x = stablehlo.reshape %a : (tensor<18xf32>) -> tensor<2x3x3x1xf32>\n"
                                  "    %w = stablehlo.reshape %b : (tensor<4xf32>) -> tensor<2x2x1x1xf32>\n"
                                  "    %0 = stablehlo.convolution(%x, %w)\n"
                                  "      dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],\n"
                                  "      window = {stride = [1, 1], pad = [[0, 0], [0, 0]]}\n"
                                  "      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}\n"
                                  "      : (tensor<2x3x3x1xf32>, tensor<2x2x1x1xf32>) -> tensor<2x2x2x1xf32>\n"
                                  "    %1 = stablehlo.reshape %0 : (tensor<2x2x2x1xf32>) -> tensor<8xf32>\n"
                                  "    return %1 : tensor<8xf32>\n"
                                  "  }\n"
                                  "}\n";

static void a_convolution_runs_on_every_device(void **state)
{
    (void)state;
    float x[18], y[8];
    const float w[4] = {1, 2, 3, 4};
    for (int i = 0; i < 18; i++)
        x[i] = (float)i;
    lk_pjrt_module *module = compile(convolution);
    for (int d = 0; d < session->n_devices; d++) {
        lk_pjrt_buffer *in[] = {upload(d, x, 18), upload(d, w, 4)}, *out = NULL;
        lk_pjrt_run run = {.module = module, .device = d, .parameters = in, .n_parameters = 2, .results = &out};
        check(lk__pjrt_run(session, &run));
        check(lk__pjrt_event_wait(session, run.done));
        check(lk__pjrt_download(session, out, y, sizeof y));
        for (int image = 0; image < 2; image++)
            for (int i = 0; i < 4; i++) {
                const float *at = x + 9 * image + 3 * (i / 2) + i % 2;
                assert_true(y[4 * image + i] == at[0] + 2 * at[1] + 3 * at[3] + 4 * at[4]);
            }
        lk__pjrt_buffer_free(session, in[0]);
        lk__pjrt_buffer_free(session, in[1]);
        lk__pjrt_buffer_free(session, out);
    }
    lk__pjrt_module_free(session, module);
}

/* A parameter whose memory goes to the result is lost; one that is kept is not. */
static void parameters_are_donated_unless_kept(void **state)
{
    (void)state;
    const float x[2] = {1, 2};
    const int64_t first = 0;
    float y[2];
    lk_pjrt_module *module = compile("func.func @main(%0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> "
                                     "tensor<2xf32> {\n"
                                     "  %1 = stablehlo.add %0, %0 : tensor<2xf32>\n"
                                     "  return %1 : tensor<2xf32>\n"
                                     "}\n");
    lk_pjrt_buffer *in = upload(0, x, 2), *out = NULL;
    lk_pjrt_run run = {
        .module = module, .parameters = &in, .n_parameters = 1, .results = &out, .kept = &first, .n_kept = 1};
    for (int i = 0; i < 2; i++) {
        check(lk__pjrt_run(session, &run));
        check(lk__pjrt_event_wait(session, run.done));
        check(lk__pjrt_download(session, out, y, sizeof y));
        assert_true(y[0] == 2 && y[1] == 4);
        lk__pjrt_buffer_free(session, out);
        run.n_kept = 0;
    }
    assert_int_equal(lk__pjrt_download(session, in, y, sizeof y), LK_ERR_BACKEND);
    lk_error_clear();
    lk__pjrt_buffer_free(session, in);
    lk__pjrt_module_free(session, module);
}

static void buffers_go_between_devices(void **state)
{
    (void)state;
    const float x[3] = {1, -2, 3};
    float y[3];
    lk_pjrt_buffer *there = upload(0, x, 3), *here = there;
    for (int d = 1; d < session->n_devices; d++) {
        check(lk__pjrt_copy(session, there, d, &here));
        lk__pjrt_buffer_free(session, there);
        there = here;
    }
    check(lk__pjrt_download(session, here, y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    lk__pjrt_buffer_free(session, here);
}

static void a_bad_module_is_refused(void **state)
{
    (void)state;
    static const char text[] = "func.func @main() { nonsense }";
    lk_pjrt_module *module;
    assert_int_equal(lk__pjrt_module_compile(session, text, strlen(text), &module), LK_ERR_BACKEND);
    assert_non_null(strstr(lk_error_message(), ": compiling: "));
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_runs_on_every_device),
        cmocka_unit_test(parameters_are_donated_unless_kept),
        cmocka_unit_test(buffers_go_between_devices),
        cmocka_unit_test(a_bad_module_is_refused),
    };
    const char *plugin = getenv("LOCKSTEP_PJRT_TEST_PLUGIN");
    if (!plugin || !*plugin) {
        print_message("SKIP: $LOCKSTEP_PJRT_TEST_PLUGIN names no PJRT plug-in\n");
        return 77;
    }
    if (lk__pjrt_session_open(plugin, &session) != LK_OK) {
        print_error("%s\n", lk_error_message());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lk__pjrt_session_close(session);
    return failed;
}
