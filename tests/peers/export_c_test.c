/* Networks exported as C compile without a warning with all compilers found, run, and agree with the library; they
 * refuse a foreign file of weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "export_networks.h"

#include <ctype.h>

static bool there_is(const char *compiler)
{
    return shell("command -v '%s' >/dev/null", compiler) == 0;
}

/* --- the main program --------------------------------------------------------------------------------------------- */

/* Reads images from stdin and writes logits, probabilities and classes to stdout. It computes each image twice, the
 * second time with other values in scratch memory. */
static const char program[] =
    "#include \"FILE.h\"\n"
    "#include <stdio.h>\n"
    "#include <stdlib.h>\n"
    "#include <string.h>\n"
    "enum { PIXELS = UPPER_CHANNELS * UPPER_HEIGHT * UPPER_WIDTH };\n"
    "int main(int argc, char **argv)\n"
    "{\n"
    "    static float image[PIXELS], scratch[UPPER_SCRATCH + 1];\n"
    "    static unsigned char bytes[PIXELS];\n"
    "    float logits[UPPER_CLASSES], probabilities[UPPER_CLASSES];\n"
    "    LOAD\n"
    "    scratch[UPPER_SCRATCH] = 42;\n"
    "    while (fread(image, sizeof image, 1, stdin) == 1) {\n"
    "        memset(scratch, 0xFF, UPPER_SCRATCH * sizeof(float));\n"
    "        LOWER_logits(WEIGHTS image, scratch, logits);\n"
    "        int best = LOWER_classify(WEIGHTS image, scratch, probabilities);\n"
    "        if (LOWER_classify(WEIGHTS image, scratch, NULL) != best || scratch[UPPER_SCRATCH] != 42)\n"
    "            return 3;\n"
    "        fwrite(logits, sizeof logits, 1, stdout);\n"
    "        fwrite(probabilities, sizeof probabilities, 1, stdout);\n"
    "        for (int i = 0; i < UPPER_HEIGHT * UPPER_WIDTH; i++)\n"
    "            for (int c = 0; c < UPPER_CHANNELS; c++)\n"
    "                bytes[i * UPPER_CHANNELS + c] =\n"
    "                    (unsigned char)(image[c * UPPER_HEIGHT * UPPER_WIDTH + i] * 255 + 0.5f);\n"
    "        LOWER_logits_bytes(WEIGHTS bytes, scratch, logits);\n"
    "        fwrite(logits, sizeof logits, 1, stdout);\n"
    "        if (LOWER_classify_bytes(WEIGHTS bytes, scratch, probabilities) >= UPPER_CLASSES)\n"
    "            return 3;\n"
    "        fwrite(&best, sizeof best, 1, stdout);\n"
    "    }\n"
    "    END\n"
    "    (void)argc, (void)argv;\n"
    "    return 0;\n"
    "}\n";

static const char load[] = "float *weights;\n"
                           "    const char *error = LOWER_load(argv[1], &weights);\n"
                           "    if (error)\n"
                           "        return fprintf(stderr, \"%s\\n\", error), 2;\n";

static void put_words(FILE *file, const char *text, const char *name, bool weights)
{
    static const char *const words[] = {"FILE", "UPPER", "LOWER", "LOAD", "WEIGHTS", "END"};
    for (; *text; text++) {
        int word = 0;
        while (word < 6 && strncmp(text, words[word], strlen(words[word])) != 0)
            word++;
        if (word == 6) {
            fputc(*text, file);
            continue;
        }
        text += strlen(words[word]) - 1;
        if (word == 0)
            fputs(name, file);
        else if (word == 3 && weights)
            put_words(file, load, name, weights);
        else if (word > 3 && weights)
            fputs(word == 4 ? "weights," : "free(weights);", file);
        for (const char *c = name; *c && (word == 1 || word == 2); c++)
            fputc(!isalnum((unsigned char)*c) ? '_' : word == 1 ? toupper((unsigned char)*c) : *c, file);
    }
}

static bool build(const char *name, const char *compiler, const char *options, bool weights)
{
    FILE *file = fopen(path_of("main.c"), "w");
    assert_non_null(file);
    put_words(file, program, name, weights);
    assert_int_equal(fclose(file), 0);
    return shell("%s -std=c11 -Wall -Wextra -pedantic -Werror %s -o program main.c '%s.c' -lm", compiler, options,
                 name) == 0;
}

/* --- comparison --------------------------------------------------------------------------------------------------- */

static double distance(const float *have, const float *want, int64_t n)
{
    double difference = 0, scale = 0;
    for (int64_t i = 0; i < n; i++) {
        difference = fmax(difference, fabs((double)have[i] - want[i]));
        scale = fmax(scale, fabs((double)want[i]));
    }
    return isfinite(difference) ? difference / scale : (double)INFINITY;
}

static int64_t best_of(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

static void assert_softmax(const float *have, const float *logits, int64_t n)
{
    double sum = 0, most = logits[best_of(logits, n)];
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(have[i] - exp(logits[i] - most) / sum) < 1e-3);
}

/* Rounds the images to bytes, which changes the logits, and returns the library's logits for these. */
static float *logits_of_bytes(exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    for (int64_t i = 0; i < e->n * in.channels * in.height * in.width; i++)
        e->images[i] = (float)(unsigned char)(e->images[i] * 255 + 0.5f) / 255.0f;
    return values_of(lk_model_forward(e->net.model, e->net.variables, prepared(e), NULL));
}

static void run_and_compare(const exported *e, const float *of_bytes, const char *name)
{
    int64_t classes = lk_model_get_input(e->net.model).classes;
    float *logits = malloc((size_t)classes * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(shell("./program '%s.weights' <images >results", name), 0);
    FILE *file = fopen(path_of("results"), "rb");
    assert_non_null(file);
    for (int64_t i = 0; i < e->n; i++) {
        const float *want = e->logits + i * classes, *want_of_bytes = of_bytes + i * classes;
        int best;
        assert_int_equal(fread(logits, sizeof *logits, (size_t)classes, file), classes);
        double difference = distance(logits, want, classes);
        assert_true(difference <= 1e-4);
        assert_int_equal(fread(logits, sizeof *logits, (size_t)classes, file), classes);
        assert_softmax(logits, want, classes);
        assert_int_equal(fread(logits, sizeof *logits, (size_t)classes, file), classes);
        double difference_of_bytes = distance(logits, want_of_bytes, classes);
        assert_true(difference_of_bytes <= 1e-4);
        assert_int_equal(fread(&best, sizeof best, 1, file), 1);
        assert_int_equal(best, best_of(want, classes));
        printf("%s: %.2e of the largest, of bytes %.2e\n", name, difference, difference_of_bytes);
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    free(logits);
}

static void write_images(const exported *e)
{
    lk_model_input in = lk_model_get_input(e->net.model);
    size_t count = (size_t)(e->n * in.channels * in.height * in.width);
    put_bytes(path_of("images"), e->images, count * sizeof *e->images);
}

/* Returns whether the compiler exists and takes the options. */
static bool works(const char *compiler, const char *options)
{
    return there_is(compiler) &&
           shell("echo 'int main(void) { return 0; }' >empty.c && %s %s empty.c -o empty 2>&1", compiler, options) == 0;
}

/* Compiles without options, for this processor's vectors, and with sanitizers. */
static void check(const export_case *c)
{
    static const char *const compilers[][2] = {{"gcc", "-O2"},
                                               {"clang", "-O2"},
                                               {"gcc", "-O3 -march=native"},
                                               {"clang", "-O3 -march=native"},
                                               {"gcc", "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"}};
    lk_scope_begin();
    exported e = open_exported(c);
    write_images(&e);
    assert_no_error(lk_export(&e.source, LK_EXPORT_C, path_of("%s.c", c->name), NULL) == LK_OK);
    bool weights = access(path_of("%s.weights", c->name), R_OK) == 0;
    float *of_bytes = logits_of_bytes(&e);
    for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++) {
        /* One network has all kernels; the others are compiled once. */
        if ((i > 0 && strcmp(c->name, "every-layer") != 0) || !works(compilers[i][0], compilers[i][1]))
            continue;
        printf("%s %s\n", compilers[i][0], compilers[i][1]);
        assert_true(build(c->name, compilers[i][0], compilers[i][1], weights));
        run_and_compare(&e, of_bytes, c->name);
    }
    free(of_bytes);
    close_exported(&e);
    lk_scope_end();
}

static void programs_agree_with_the_library(void **state)
{
    (void)state;
    if (!there_is("gcc") && !there_is("clang")) {
        print_message("SKIP: there is neither gcc nor clang\n");
        skip();
    }
    for (int i = 0; i < EXPORT_CASES; i++)
        check(&export_cases[i]);
}

/* --- weights in a file -------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *change, const char *message)
{
    if (shell("cp resnet18.weights other && (%s) && { ./program other <images >results 2>said; [ $? -eq 2 ]; } && "
              "grep -qxF '%s' said",
              change, message) != 0)
        fail_msg("%s: not '%s'", change, message);
}

static void weights_of_another_network_are_refused(void **state)
{
    (void)state;
    if (!there_is("gcc")) {
        print_message("SKIP: there is no gcc\n");
        skip();
    }
    lk_scope_begin();
    exported e = open_exported(export_case_of("resnet18"));
    write_images(&e);
    assert_no_error(lk_export(&e.source, LK_EXPORT_C, path_of("resnet18.c"), NULL) == LK_OK);
    close_exported(&e);
    lk_scope_end();
    assert_true(build("resnet18", "gcc", "-O1", true));
    expect_refusal("rm other", "the file with the weights cannot be opened");
    expect_refusal("truncate -s -1 other", "the file with the weights is too short, or cannot be read");
    expect_refusal("printf x >>other", "the file with the weights is too long");
    expect_refusal("printf '\\252' | dd of=other bs=1 seek=1234567 conv=notrunc 2>/dev/null",
                   "the file holds weights of another network, or damaged ones");
}

/* --- the file's own text ------------------------------------------------------------------------------------------ */

static void names_become_valid_c(void **state)
{
    (void)state;
    static const char *const names[] = {"plain \"quoted\" ?\?/", "caf\xC3\xA9\n", "c"};
    lk_scope_begin();
    exported e = open_exported(export_case_of("global-average"));
    e.source.class_names = names;
    assert_no_error(lk_export(&e.source, LK_EXPORT_C, path_of("2 nets-b.c"), NULL) == LK_OK);
    FILE *file = fopen(path_of("main.c"), "w");
    assert_non_null(file);
    fputs("#include \"2 nets-b.h\"\n#include <string.h>\nint main(void) { return NET_2_NETS_B_CLASSES != 3 ||"
          " strcmp(net_2_nets_b_class_names[0], \"plain \\\"quoted\\\" ?\\?/\") ||"
          " strcmp(net_2_nets_b_class_names[1], \"caf\\303\\251\\n\"); }\n",
          file);
    assert_int_equal(fclose(file), 0);
    if (there_is("gcc"))
        assert_int_equal(shell("gcc -std=c11 -Wall -Wextra -pedantic -Werror -o program main.c '2 nets-b.c' -lm && "
                               "./program"),
                         0);
    static const char *const refused[] = {"net", "net.cc", ".c"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lk_export(&e.source, LK_EXPORT_C, path_of("%s", refused[i]), NULL), LK_ERR_ARGUMENT);
        assert_error(LK_ERR_ARGUMENT, "C is written to a file whose name ends in '.c'; expected a path as net.c");
    }
    static const char *const unspeakable[] = {"a\"b.c", "a\\b.c", "a\nb.c", "a?\?=b.c"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lk_export(&e.source, LK_EXPORT_C, path_of("%s", unspeakable[i]), NULL), LK_ERR_ARGUMENT);
        assert_error(LK_ERR_ARGUMENT, "C cannot include NAME.h where NAME has a quote");
    }
    close_exported(&e);
    lk_scope_end();
}

/* Compilers would warn if the file declared something that it does not use. */
static void networks_may_have_no_weights(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(LK_SEQUENTIAL(lk_layer_activation(LK_RELU), lk_layer_global_avg_pool()),
                              (lk_model_input){3, 5, 4, 3});
    const lk_export_network source = {.model = net.model, .variables = (const float *const[]){NULL}};
    assert_no_error(lk_export(&source, LK_EXPORT_C, path_of("none.c"), NULL) == LK_OK);
    if (there_is("gcc"))
        assert_true(build("none", "gcc", "-O2", false));
    close_network(&net);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(programs_agree_with_the_library),
        FOLDER_TEST(weights_of_another_network_are_refused),
        FOLDER_TEST(names_become_valid_c),
        FOLDER_TEST(networks_may_have_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
