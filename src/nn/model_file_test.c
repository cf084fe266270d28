/* Model files: the reference models written as files equal the built-in ones, and wrong lines are reported. */
#include "base/mem_testing.h"
#include "nn/nn_testing.h"

#include <sys/stat.h>
#include <unistd.h>

static const lk_model_input gray28 = {.channels = 1, .height = 28, .width = 28, .classes = 10};

static char path[64];

static void write_file(const char *text, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

static lk_model *model_of(const char *text)
{
    write_file(text, strlen(text));
    return lk_model_new(path, gray28);
}

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/lockstep-model-%d.lk", (int)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return remove(path) && access(path, F_OK) == 0;
}

/* Tests may run in any folder of the build; this file's path leads to the sources. */
static void example_path(const char *name, char *text, size_t size)
{
    const char *source = __FILE__, *src = strstr(source, "src/nn/");
    assert_non_null(src);
    snprintf(text, size, "%.*sexamples/models/%s.lk", (int)(src - source), source, name);
}

/* --- the reference models ----------------------------------------------------------------------------------------- */

static void assert_same_layers(const lk_model *a, const lk_model *b)
{
    assert_int_equal(lk_model_layer_count(a), lk_model_layer_count(b));
    for (int i = 0; i < lk_model_layer_count(a); i++) {
        lk_layer_info x = lk_model_layer(a, i), y = lk_model_layer(b, i);
        assert_string_equal(x.path, y.path);
        assert_string_equal(x.kind, y.kind);
        assert_memory_equal(x.output.dim, y.output.dim, (size_t)x.output.ndim * sizeof x.output.dim[0]);
    }
}

static void assert_same_values(const lk_model *a, const lk_model *b)
{
    int n = lk_model_variable_count(a);
    lk_scope_begin();
    lk_device *device = lk_device_open("cpu:0");
    lk_tensor **x = calloc((size_t)n, sizeof *x), **y = calloc((size_t)n, sizeof *y);
    assert_no_error(lk_model_init(a, device, 5, x) == LK_OK && lk_model_init(b, device, 5, y) == LK_OK);
    for (int i = 0; i < n; i++) {
        assert_string_equal(lk_model_variable_name(a, i), lk_model_variable_name(b, i));
        assert_same_bits(x[i], y[i]);
    }
    free(x);
    free(y);
    lk_scope_end();
    lk_device_release(device);
}

static void assert_same_outputs(const lk_model *a, const lk_model *b)
{
    lk_scope_begin();
    network net = {.device = lk_device_open("cpu:0"), .model = (lk_model *)(uintptr_t)a};
    lk_tensor **variables = calloc((size_t)lk_model_variable_count(a), sizeof *variables);
    assert_no_error(lk_model_init(a, net.device, 5, variables) == LK_OK);
    lk_tensor *x = images(&net, 1);
    const lk_forward_opts opts = {.training = true, .seed = 1, .indices = net.indices};
    assert_same_bits(lk_model_forward(a, variables, x, &opts), lk_model_forward(b, variables, x, &opts));
    free(variables);
    lk_scope_end();
    lk_device_release(net.device);
}

static void test_reference_models(void **state)
{
    (void)state;
    for (int i = 0; lk_model_name_at(i); i++) {
        char file[512];
        example_path(lk_model_name_at(i), file, sizeof file);
        lk_model *built_in = lk_model_new(lk_model_name_at(i), gray28), *read = lk_model_new(file, gray28);
        assert_no_error(built_in && read);
        assert_int_equal(lk_model_variable_count(built_in), lk_model_variable_count(read));
        assert_int_equal(lk_model_parameter_count(built_in), lk_model_parameter_count(read));
        assert_same_layers(built_in, read);
        assert_same_values(built_in, read);
        assert_same_outputs(built_in, read);
        lk_model_release(built_in);
        lk_model_release(read);
    }
}

/* --- lines and their layers --------------------------------------------------------------------------------------- */

static void test_blocks_and_names(void **state)
{
    (void)state;
    lk_model *model = model_of("conv2d 4 kernel=3 padding=same # stem\n"
                               "stage: repeat 2\n"
                               "  residual\n"
                               "    x: conv2d 4 kernel=3 padding=1\r\n"
                               "    relu\n"
                               "  shortcut\n"
                               "    y: conv2d filters=4 kernel=1 bias=no\n"
                               "  end\n"
                               "  relu\n"
                               "end\n"
                               "\n"
                               "conv2d classes kernel=1 bias_init=normal(1e-2)\n"
                               "global_avg_pool");
    static const char *const layers[] = {"conv2d",        "stage.1.x", "stage.1.relu",   "stage.1.y", "stage.1.add",
                                         "stage.1.relu2", "stage.2.x", "stage.2.relu",   "stage.2.y", "stage.2.add",
                                         "stage.2.relu2", "conv2d2",   "global_avg_pool"};
    assert_no_error(model != NULL);
    assert_int_equal(lk_model_layer_count(model), sizeof layers / sizeof layers[0]);
    for (int i = 0; i < lk_model_layer_count(model); i++)
        assert_string_equal(lk_model_layer(model, i).path, layers[i]);
    assert_true(variable_index(model, "stage.2.x.bias") >= 0);
    assert_int_equal(variable_index(model, "stage.2.y.bias"), -1);
    assert_string_equal(lk_model_name(model), path);
    lk_model_release(model);
}

static void test_every_word(void **state)
{
    (void)state;
    lk_model *model = model_of("conv2d 2 kernel=3 stride=2 padding=1 bias=no init=he_normal\n"
                               "batch_norm epsilon=0.001 momentum=1\nrelu\nleaky_relu\nelu\nsigmoid\ntanh\nsilu\ngelu\n"
                               "softplus\nmax_pool 3 stride=1 padding=1\navg_pool kernel=2\ndropout rate=0\nflatten\n"
                               "reshape channels=98 height=1 width=1\nresidual\nend\nsequential\nend\n"
                               "global_max_pool\ndense 10 init=ones bias_init=torch_uniform bias=yes");
    assert_no_error(model != NULL);
    assert_int_equal(lk_model_layer_count(model), 18);
    lk_model_release(model);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        lk_status status;
        const char *message;
    } rows[] = {
        {"", LK_ERR_FORMAT, ".lk:1: the file ends without a layer; expected one like"},
        {"# nothing\n\n", LK_ERR_FORMAT, ".lk:3: the file ends without a layer"},
        {"flatten\nrleu", LK_ERR_FORMAT, ":2: unknown layer 'rleu'; expected a layer: did you mean 'relu'?"},
        {"flatten\nsequental", LK_ERR_FORMAT,
         ":2: unknown layer 'sequental'; expected a layer: did you mean 'sequential'?"},
        {"fully_connected 10", LK_ERR_FORMAT, ":1: unknown layer 'fully_connected'; expected one like"},
        {"conv2d 10", LK_ERR_FORMAT, ":1: conv2d without kernel; expected kernel=VALUE"},
        {"conv2d kernel=3", LK_ERR_FORMAT, ":1: conv2d without filters; expected filters=VALUE"},
        {"conv2d 10 kernle=3", LK_ERR_FORMAT,
         ":1: conv2d has no setting 'kernle'; expected one of filters, kernel, stride, padding, dilation, groups, "
         "bias, init, bias_init, frozen: did you mean 'kernel'?"},
        {"conv2d 10 size=3", LK_ERR_FORMAT,
         ":1: conv2d has no setting 'size'; expected one of filters, kernel, stride, padding, dilation, groups, "
         "bias, init, bias_init, frozen"},
        {"conv2d 10 kernel=3 groups=3", LK_ERR_FORMAT,
         ":1: groups=3 with 10 filters; expected a divisor of the filters"},
        {"conv2d 10 kernel=3 dilation=0", LK_ERR_FORMAT,
         ":1: dilation is '0'; expected two numbers such as 3x1, or a whole number from 1 to 4096"},
        {"conv2d 10 kernel=3x", LK_ERR_FORMAT, ":1: kernel along W is ''; expected a whole number from 1 to 4096"},
        {"conv2d 10 kernel=3x0", LK_ERR_FORMAT, ":1: kernel along W is '0'; expected a whole number from 1 to 4096"},
        {"conv2d 10 kernel=3x1x1", LK_ERR_FORMAT, ":1: kernel along W is '1x1'; expected a whole number"},
        {"conv2d 10 kernel=3 stride=-1x1", LK_ERR_FORMAT, ":1: stride along H is '-1'; expected a whole number from 1"},
        {"conv2d 10 kernel=3x2 padding=same", LK_ERR_FORMAT, ":1: padding=same with kernel=2; expected an odd kernel"},
        {"max_pool 3x2 padding=1x2", LK_ERR_FORMAT, ":1: padding=2 with a kernel of 2; expected at most half"},
        {"max_pool 2 stride=1x", LK_ERR_FORMAT, ":1: stride along W is ''"},
        {"scale", LK_ERR_FORMAT, ":1: scale without initial; expected initial=VALUE"},
        {"scale 2e37", LK_ERR_FORMAT, ":1: initial is '2e37'; expected a number from -1e+37 to 1e+37"},
        {"group_norm", LK_ERR_FORMAT, ":1: group_norm without groups; expected groups=VALUE"},
        {"group_norm 0", LK_ERR_FORMAT, ":1: groups is '0'; expected a whole number from 1 to 16777216"},
        {"group_norm 2 epsilon=2e37", LK_ERR_FORMAT, ":1: epsilon is '2e37'; expected a number from 1e-37 to 1e+37"},
        {"conv2d 6 kernel=1\ngroup_norm 4", LK_ERR_SHAPE,
         ":2: group_norm: gets 6 channels; expected a multiple of its 4 groups"},
        {"layer_norm 2", LK_ERR_FORMAT, ":1: '2' is no setting; expected NAME=VALUE"},
        {"layer_norm groups=2", LK_ERR_FORMAT,
         ":1: layer_norm has no setting 'groups'; expected one of epsilon, frozen"},
        {"drop_path", LK_ERR_FORMAT, ":1: drop_path without rate; expected rate=VALUE"},
        {"drop_path 1", LK_ERR_FORMAT, ":1: rate is '1'; expected a number of at least 0 and below 1"},
        {"concat\nby\nend", LK_ERR_FORMAT, ":2: 'by' in the 'concat' of line 1, which takes none"},
        {"with", LK_ERR_FORMAT, ":1: 'with' without a block"},
        {"residual\nwith\nend", LK_ERR_FORMAT, ":2: 'with' in the 'residual' of line 1, which takes none"},
        {"concat 3\nend", LK_ERR_FORMAT, ":1: concat has no setting '3'; expected none but frozen=yes"},
        {"relu\nconcat\nmax_pool 2\nend", LK_ERR_SHAPE,
         ":2: concat: the first layers give [1,1,28,28] and the second ones [1,1,14,14]; expected shapes that differ"},
        {"dense 10 frozen=maybe", LK_ERR_FORMAT, ":1: frozen is 'maybe'; expected yes or no"},
        {"residual frozen=1\nend", LK_ERR_FORMAT, ":1: frozen is '1'; expected yes or no"},
        {"relu frozen=yes", LK_ERR_FORMAT, ":1: relu has no setting 'frozen'; expected none"},
        {"relu alpha=3", LK_ERR_FORMAT, ":1: relu has no setting 'alpha'; expected none"},
        {"conv2d kernel=3 4", LK_ERR_FORMAT, ":1: '4' is no setting; expected NAME=VALUE"},
        {"relu 3", LK_ERR_FORMAT, ":1: '3' follows relu, which has no settings"},
        {"sequential frozen=yes frozen=yes\nend", LK_ERR_FORMAT, ":1: frozen is given twice; expected it once"},
        {"conv2d 3 kernel=3 dilation=20", LK_ERR_SHAPE,
         ":1: conv2d: a kernel of 3 with dilation 20 spans 41 pixels, more than H = 28 with padding 0"},
        {"conv2d 0 kernel=3", LK_ERR_FORMAT,
         ":1: filters is '0'; expected classes or a whole number from 1 to 16777216"},
        {"conv2d 99999999999999999999 kernel=3", LK_ERR_FORMAT, ":1: filters is '99999999999999999999'"},
        {"conv2d 3.5 kernel=3", LK_ERR_FORMAT, ":1: filters is '3.5'"},
        {"conv2d 3 kernel=", LK_ERR_FORMAT, ":1: kernel is ''"},
        {"conv2d 3 kernel=0x3", LK_ERR_FORMAT, ":1: kernel along H is '0'; expected a whole number"},
        {"conv2d 3 kernel=3 kernel=3", LK_ERR_FORMAT, ":1: kernel is given twice; expected it once"},
        {"conv2d 3 kernel=2 padding=same", LK_ERR_FORMAT, ":1: padding=same with kernel=2; expected an odd kernel"},
        {"conv2d 3 kernel=2 padding=some", LK_ERR_FORMAT,
         ":1: padding is 'some'; expected same, two numbers such as 1x0, or a whole number from 0 to 4096"},
        {"conv2d 3 kernel=2 bias=0", LK_ERR_FORMAT, ":1: bias is '0'; expected yes or no"},
        {"conv2d 3 kernel=2 init=normal", LK_ERR_FORMAT,
         ":1: init is 'normal'; expected zeros, ones, constant(VALUE), normal(DEVIATION) with a deviation from 0 to "
         "1e37"},
        {"conv2d 3 kernel=2 init=normal(-1)", LK_ERR_FORMAT,
         ":1: init is 'normal(-1)'; expected zeros, ones, constant(VALUE), normal(DEVIATION) with a deviation from 0 "
         "to 1e37"},
        {"conv2d 3 kernel=2 init=constant(inf)", LK_ERR_FORMAT, ":1: init is 'constant(inf)'"},
        {"conv2d 3 kernel=2 init=normal(1", LK_ERR_FORMAT, ":1: init is 'normal(1'"},
        {"conv2d 3 kernel=2 init=normal(nan)", LK_ERR_FORMAT, ":1: init is 'normal(nan)'"},
        {"conv2d 3 kernel=2 init=normal(1e39)", LK_ERR_FORMAT, ":1: init is 'normal(1e39)'"},
        {"max_pool 2 padding=2", LK_ERR_FORMAT, ":1: padding=2 with a kernel of 2; expected at most half"},
        {"dropout 1", LK_ERR_FORMAT, ":1: rate is '1'; expected a number of at least 0 and below 1"},
        {"dropout", LK_ERR_FORMAT, ":1: dropout without rate"},
        {"batch_norm epsilon=0", LK_ERR_FORMAT, ":1: epsilon is '0'"},
        {"a b: relu", LK_ERR_FORMAT, ":1: unknown layer 'a'"},
        {"a.b: relu", LK_ERR_FORMAT, ":1: the name 'a.b'; expected letters, digits"},
        {"a:", LK_ERR_FORMAT, ":1: 'a:' names nothing; expected a layer after it"},
        {"x: relu\nx: relu\nflatten\ndense 10", LK_ERR_FORMAT,
         ":2: relu: the name 'x' is used twice; expected a name of its own"},
        {"sequential\nrelu", LK_ERR_FORMAT, ":1: 'sequential' is not closed; expected an 'end'"},
        {"sequential\nresidual\nend\n", LK_ERR_FORMAT, ":1: 'sequential' is not closed"},
        {"relu\nend", LK_ERR_FORMAT, ":2: 'end' without a block that it could belong to; expected a layer"},
        {"shortcut", LK_ERR_FORMAT, ":1: 'shortcut' without a block"},
        {"by", LK_ERR_FORMAT, ":1: 'by' without a block"},
        {"multiply\nrelu\nend", LK_ERR_FORMAT, ":1: multiply without by; expected 'by' and the layers that give the"},
        {"multiply\nshortcut\nend", LK_ERR_FORMAT, ":2: 'shortcut' in the 'multiply' of line 1, which takes none"},
        {"residual\nby\nend", LK_ERR_FORMAT, ":2: 'by' in the 'residual' of line 1, which takes none"},
        {"multiply\nby\nrelu\nby\nend", LK_ERR_FORMAT, ":4: 'by' in the 'multiply' of line 1, which takes one"},
        {"sequential\nshortcut\nend", LK_ERR_FORMAT,
         ":2: 'shortcut' in the 'sequential' of line 1, which takes none; expected a layer or 'end'"},
        {"residual\nshortcut\nshortcut\nend", LK_ERR_FORMAT,
         ":3: 'shortcut' in the 'residual' of line 1, which takes one"},
        {"residual\nend now", LK_ERR_FORMAT, ":2: 'end' has a name or a setting; expected it alone"},
        {"residual 2\nend", LK_ERR_FORMAT, ":1: residual has no setting '2'; expected none but frozen=yes"},
        {"repeat\nend", LK_ERR_FORMAT, ":1: repeat has 0 settings; expected one number"},
        {"repeat 0\nend", LK_ERR_FORMAT, ":1: the number of repetitions is '0'"},
        {"repeat 1000\nrepeat 1000\nrepeat 1000\nend\nend\nend", LK_ERR_FORMAT,
         "too many layers, repetitions counted; expected at most 10000"},
        {"residual\n\nconv2d 3 kernel=3\nend", LK_ERR_SHAPE, ":1: add: the body gives [1,3,26,26] and the shortcut"},
        {"conv2d 3 kernel=3\ndense 10", LK_ERR_SHAPE, ":2: dense: gets [1,3,26,26]; expected [N, K]: put a flatten"},
        {"flatten\nmax_pool 2", LK_ERR_SHAPE, ":2: max_pool: gets [1,784]; expected [N, C, H, W]: put a reshape"},
        {"max_pool 20\nmax_pool 2", LK_ERR_SHAPE,
         ":2: max_pool: a kernel of 2 does not fit into H = 1 with padding 0, the images are too small; expected a "
         "kernel of at most 1"},
        {"reshape channels=2 height=2 width=2", LK_ERR_SHAPE,
         ":1: reshape: gets [1,1,28,28], 784 elements a sample; expected as many as [N,2,2,2] has"},
        {"flatten\ndense 11", LK_ERR_SHAPE, ":2: dense: the output is [1,11]; expected [N,10], one number a class"},
        {"flatten\nx: sequential\ndense 11\n\nrelu\nend", LK_ERR_SHAPE, ":5: relu: the output is [1,11]"},
        {"residual\nrelu\nend", LK_ERR_SHAPE, ":1: add: the output is [1,1,28,28]; expected [N,10]"},
        {"conv2d 10 kernel=1 bias=no", LK_ERR_SHAPE, ":1: conv2d: the output is [1,10,28,28]"},
        {"sequential\nend", LK_ERR_SHAPE, ":1: sequential: the output is [1,1,28,28]"},
        {"flatten\ndense 4000000000\ndense 10", LK_ERR_FORMAT, ":2: units is '4000000000'; expected classes or"},
        {"conv2d 1000000000 kernel=1", LK_ERR_FORMAT,
         ":1: filters is '1000000000'; expected classes or a whole number"},
        {"flatten\ndense 16777216\ndense 10", LK_ERR_SHAPE,
         ":2: dense: 'weight' is [784,16777216]; expected 1 to 2147483647 elements"},
        {"flatten\nrepeat 100\ndense 10000\nend\ndense 10", LK_ERR_SHAPE,
         ":3: dense: 'weight' is [10000,10000]; expected 1 to 39423647 elements"},
        {"conv2d 16777216 kernel=1", LK_ERR_SHAPE,
         ":1: conv2d: gives [1,16777216,28,28]; expected at most 2147483647 elements an image"},
        {"repeat 2\nrelu\nend\nrepeat 2\nrelu\nend", LK_ERR_FORMAT, ":4: sequential: the name '1' is used twice"},
        {"relu 1=1 2=1 3=1 4=1 5=1 6=1 7=1 8=1 9=1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1", LK_ERR_FORMAT,
         ":1: 'h=1' is one setting too many; expected at most 16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_null(model_of(rows[i].text));
        assert_error(rows[i].status, rows[i].message);
    }
}

static void test_files_that_are_none(void **state)
{
    (void)state;
    assert_null(lk_model_new("/nowhere/there.lk", gray28));
    assert_error(LK_ERR_IO, "/nowhere/there.lk: cannot be opened: No such file");
    assert_null(lk_model_new("/tmp/", gray28));
    assert_error(LK_ERR_IO, "/tmp/: cannot be");
    write_file("flatten\n\0relu", 13);
    assert_null(lk_model_new(path, gray28));
    assert_error(LK_ERR_FORMAT, ".lk:2: a byte of 0; expected text");
    size_t size = (1 << 20) + 1;
    char *text = malloc(size);
    memset(text, 'a', size);
    write_file(text, size);
    assert_null(lk_model_new(path, gray28));
    assert_error(LK_ERR_FORMAT, ".lk:1: more than 1048576 bytes; expected a short text");
    text[1001] = '\0';
    assert_null(model_of(text));
    assert_error(LK_ERR_FORMAT, ":1: a line of 1001 characters; expected at most 1000");
    free(text);
}

static void nested(int depth, char *text)
{
    strcpy(text, "global_avg_pool\ndense 10\n");
    for (int i = 0; i < depth; i++)
        strcat(text, "residual\n");
    strcat(text, "relu\n");
    for (int i = 0; i < depth; i++)
        strcat(text, "end\n");
}

static void test_depth(void **state)
{
    (void)state;
    char text[1024];
    nested(32, text);
    lk_model *model = model_of(text);
    assert_no_error(model != NULL);
    lk_model_release(model);
    nested(33, text);
    assert_null(model_of(text));
    assert_error(LK_ERR_FORMAT, ":35: blocks are nested too deep; expected at most 32");
}

/* --- any bytes ---------------------------------------------------------------------------------------------------- */

/* The result is either a model or an error that names the file. */
static void try_bytes(const char *text, size_t size)
{
    write_file(text, size);
    lk_model *model = lk_model_new(path, gray28);
    if (!model)
        assert_error(lk_error_status(), path);
    assert_true(lk_error_status() == LK_OK);
    lk_model_release(model);
}

static void mutate(char *text, size_t size, uint64_t round)
{
    static const char bytes[] = "\n =:#()x019.-\xff";
    lk_random_key key = {.seed = 1, .purpose = lk_random_purpose("mutate"), .sample = round};
    uint32_t words[4];
    lk_random_block(&key, 0, words);
    text[words[0] % size] = bytes[words[1] % (sizeof bytes - 1)];
    if (words[2] % 4 == 0) /* swap lines with empty ones */
        memset(text + words[3] % size, ' ', size - words[3] % size < 12 ? size - words[3] % size : 12);
}

static void test_any_bytes(void **state)
{
    (void)state;
    static const char text[] = "stem: conv2d 4 kernel=3 padding=same init=normal(0.01)\nbatch_norm momentum=0.5\n"
                               "s: repeat 2\nresidual\nconv2d 4 kernel=3 padding=1 bias=no\nshortcut\n"
                               "conv2d 4 kernel=1\nend\nrelu\nend\nsequential\nmax_pool 2 stride=2\nend\n"
                               "flatten\ndropout 0.5\ndense classes bias_init=ones # last\n";
    size_t size = sizeof text - 1;
    for (size_t n = 0; n <= size; n++)
        try_bytes(text, n);
    char copy[sizeof text];
    for (uint64_t round = 0; round < 2000; round++) {
        if (round % 8 == 0)
            memcpy(copy, text, sizeof copy);
        mutate(copy, size, round);
        try_bytes(copy, size);
    }
}

/* --- without data ------------------------------------------------------------------------------------------------- */

/* Everything is checked except what depends on the images. */
static void test_check(void **state)
{
    (void)state;
    static const char good[] = "conv2d 6 kernel=9\nconv2d classes kernel=1 groups=2\nmax_pool 100\nglobal_avg_pool";
    write_file(good, sizeof good - 1);
    assert_int_equal(lk_model_check(path), LK_OK);
    assert_null(lk_model_new(path, gray28));
    assert_error(LK_ERR_SHAPE, ":3: max_pool: a kernel of 100 does not fit");
    write_file("flatten\ndens 10", 15);
    assert_int_equal(lk_model_check(path), LK_ERR_FORMAT);
    assert_error(LK_ERR_FORMAT, ":2: unknown layer 'dens'");
    write_file("flatten\nrelu", 12);
    assert_int_equal(lk_model_check(path), LK_OK);
    assert_null(lk_model_new(path, (lk_model_input){10, 1, 1, 10}));
    assert_error(LK_ERR_FORMAT, ":2: relu: the network ends with nothing to train; expected a conv2d or a dense");
    write_file("x: relu\nx: relu", 15);
    assert_int_equal(lk_model_check(path), LK_ERR_FORMAT);
    assert_error(LK_ERR_FORMAT, ":2: relu: the name 'x' is used twice");
}

/* Opening the pipe would wait for a writer. */
static void test_check_leaves_pipes_alone(void **state)
{
    (void)state;
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lk_model_check(path), LK_OK);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    static const char text[] = "a: sequential\nresidual\nconv2d 1 kernel=1\nshortcut\nconv2d 1 kernel=1\nend\nend\n"
                               "repeat 2\nbatch_norm\nend\nflatten\ndense 10\n";
    write_file(text, sizeof text - 1);
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_model *model = lk_model_new(path, gray28);
        stop_failing_with(&f, lk_error_status());
        assert_true((model == NULL) == f.reached);
        lk_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_models),
        cmocka_unit_test(test_blocks_and_names),
        cmocka_unit_test(test_every_word),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_files_that_are_none),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_check_leaves_pipes_alone),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
