/* Files are read as they were written, and any inconsistent header is rejected before a tensor is read. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"

#include <math.h>
#include <sys/stat.h>

static char path[PATH_MAX];

static int make_path(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s", in_dir("some.safetensors"));
    return 0;
}

/* `length`: the header's length as the file states it. */
static void write_raw(uint64_t length, const char *header, size_t data)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 255), file);
    fputs(header, file);
    for (size_t i = 0; i < data; i++)
        fputc((int)i, file);
    assert_int_equal(fclose(file), 0);
}

static void write_header(const char *header, size_t data)
{
    write_raw(strlen(header), header, data);
}

static void refused(const char *message)
{
    lk_safetensors *file;
    assert_int_equal(lk__safetensors_open(path, &file), LK_ERR_FORMAT);
    assert_null(file);
    if (!strstr(lk_error_message(), message) || !strstr(lk_error_message(), path))
        fail_msg("'%s' or the file is not in '%s'", message, lk_error_message());
    lk_error_clear();
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    const float a[] = {1, -2.5f, 0, INFINITY, 3e-42f, -0.0f}, b[] = {7};
    const lk_safetensors_entry entries[] = {
        {"conv1.weight", LK_SHAPE(2, 3), a}, {"none", LK_SHAPE(0, 4), NULL}, {"a \"quoted\" name", LK_SCALAR, b}};
    const char *const metadata[] = {"format", "pt", "seed", "3", NULL};
    int64_t bytes;
    uint64_t hash;
    struct stat there;
    assert_int_equal(lk__safetensors_write(path, entries, 3, metadata, &bytes, &hash), LK_OK);
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_size, bytes);
    lk_safetensors *file;
    assert_int_equal(lk__safetensors_open(path, &file), LK_OK);
    assert_int_equal(lk__safetensors_count(file), 3);
    assert_string_equal(lk__safetensors_metadata(file, "seed"), "3");
    assert_null(lk__safetensors_metadata(file, "epoch"));
    assert_null(lk__safetensors_find(file, "conv1"));
    const lk_safetensor *tensor = lk__safetensors_find(file, "conv1.weight");
    assert_non_null(tensor);
    assert_int_equal(tensor->shape.ndim, 2);
    assert_int_equal(tensor->shape.dim[1], 3);
    assert_int_equal(tensor->begin % 64, 0);
    float found[6];
    assert_int_equal(lk__safetensors_read(file, tensor, found), LK_OK);
    assert_memory_equal(found, a, sizeof a);
    tensor = lk__safetensors_find(file, "a \"quoted\" name");
    assert_non_null(tensor);
    assert_int_equal(lk__safetensors_read(file, tensor, found), LK_OK);
    assert_true(found[0] == 7);
    lk__safetensors_close(file);
}

static void writes_no_header_that_cannot_be_read(void **state)
{
    (void)state;
    static const char letters[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    char *name = malloc(LK_SAFETENSORS_MAX_HEADER);
    assert_non_null(name);
    for (size_t i = 0; i < LK_SAFETENSORS_MAX_HEADER / sizeof letters; i++)
        memcpy(name + i * (sizeof letters - 1), letters, sizeof letters);
    memset(name + strlen(name), 'a', LK_SAFETENSORS_MAX_HEADER - 1 - strlen(name));
    name[LK_SAFETENSORS_MAX_HEADER - 1] = '\0';
    const float a = 1;
    const lk_safetensors_entry entry = {name, LK_SCALAR, &a};
    int64_t bytes;
    uint64_t hash;
    assert_int_equal(lk__safetensors_write(path, &entry, 1, NULL, &bytes, &hash), LK_ERR_UNSUPPORTED);
    assert_non_null(strstr(lk_error_message(), "at most 33554432 can be read"));
    lk_error_clear();
    free(name);
}

static void reads_other_floats(void **state)
{
    (void)state;
    static const unsigned char data[] = {0,    0x3c, 1, 0, 0, 0xfc,           /* F16: 1, 2^-24, -inf */
                                         0xc0, 0x3f,                          /* BF16: 1.5 */
                                         0,    0,    0, 0, 0, 0,    4, 0xc0}; /* F64: -2.5 */
    static const char header[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[6,8]},"
                                 "\"d\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]}}  ";
    write_header(header, 0);
    FILE *stream = fopen(path, "ab");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, sizeof data, stream), sizeof data);
    assert_int_equal(fclose(stream), 0);
    lk_safetensors *file;
    float values[3];
    if (lk__safetensors_open(path, &file) != LK_OK)
        fail_msg("%s", lk_error_message());
    assert_int_equal(lk__safetensors_read(file, lk__safetensors_find(file, "h"), values), LK_OK);
    assert_true(values[0] == 1 && values[1] == 0x1p-24f && isinf(values[2]) && values[2] < 0);
    assert_int_equal(lk__safetensors_read(file, lk__safetensors_find(file, "b"), values), LK_OK);
    assert_true(values[0] == 1.5f);
    assert_int_equal(lk__safetensors_read(file, lk__safetensors_find(file, "d"), values), LK_OK);
    assert_true(values[0] == -2.5f);
    lk__safetensors_close(file);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void refuses_headers_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *message;
    } cases[] = {
        {"", 0, "not JSON"},
        {"[]", 0, "no JSON object"},
        {"{\"a\":", 0, "not JSON"},
        {"{\"a\":1}", 0, "expected an object"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "not JSON"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"a\":" T("F33", "[1]", "[0,4]") "}", 4, "dtype 'F33'"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", 4, "span 4 bytes"},
        {"{\"a\":" T("F64", "[1]", "[0,4]") "}", 4, "span 4 bytes"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "axis 0"},
        {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", 4, "axis 0"},
        {"{\"a\":" T("F32", "{}", "[0,4]") "}", 4, "shape"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1]", "[0,4]") "}", 4, "7 axes"},
        {"{\"a\":" T("F32", "[4611686018427387904,4]", "[0,0]") "}", 0, "more elements"},
        {"{\"a\":" T("F32", "[4611686018427387904]", "[0,0]") "}", 0, "more bytes"},
        {"{\"a\":" T("F32", "[1]", "[0,8]") "}", 4, "data_offsets 0 to 8"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "data_offsets -4 to 0"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "data_offsets 4 to 0"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "two numbers"},
        {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 4, "two numbers"},
        {"{\"a\":" T("F32", "[1]", "[\"0\",4]") "}", 4, "two numbers"},
        {"{\"a\":" T("F32", "[1]", "[9223372036854775807,9223372036854775807]") "}", 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[99999999999999999999,4]") "}", 4, "not JSON"},
        /* Overlapping, with a gap, and not to the end. */
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", 12, "begins at byte 4"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 4, "begins at byte 0"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 12, "begins at byte 8"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 12, "12 bytes behind the header"},
        {"{}", 1, "1 bytes behind the header"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_header(cases[i].header, cases[i].data);
        refused(cases[i].message);
    }
}

static void refuses_lengths_that_lie(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 64, 2147483648u, UINT64_MAX, INT64_MAX, LK_SAFETENSORS_MAX_HEADER + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        write_raw(lengths[i], "{}", 0);
        refused("a header of");
    }
    write_raw(0x04034b50, "{}", 0);
    refused("is a zip archive, as torch.save writes");
    assert_int_equal(truncate(path, 5), 0);
    refused("5 bytes");
    /* A sparse file of the stated size. */
    write_raw(2147483648u, "{}", 0);
    assert_int_equal(truncate(path, 2147483648u + 8), 0);
    refused("a header of 2147483648 bytes");
}

static void refuses_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    char *deep = calloc(DEPTH + 1, 1);
    assert_non_null(deep);
    memset(deep, '[', DEPTH);
    write_header(deep, 0);
    refused("not JSON");
    for (int i = 0; i + 4 < DEPTH; i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    write_header(deep, 0);
    refused("not JSON");
    free(deep);
}

static void refuses_what_became_shorter(void **state)
{
    (void)state;
    float values[4];
    lk_safetensors *file;
    write_header("{\"a\":" T("F32", "[4]", "[0,16]") "}", 16);
    assert_int_equal(lk__safetensors_open(path, &file), LK_OK);
    assert_int_equal(truncate(path, lk__safetensors_at(file, 0)->begin + 7), 0);
    assert_int_equal(lk__safetensors_read(file, lk__safetensors_at(file, 0), values), LK_ERR_FORMAT);
    lk_error_clear();
    lk__safetensors_close(file);
    write_header("{\"a\":" T("I32", "[4]", "[0,16]") "}", 16);
    assert_int_equal(lk__safetensors_open(path, &file), LK_OK);
    assert_int_equal(lk__safetensors_read(file, lk__safetensors_at(file, 0), values), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "I32"));
    lk_error_clear();
    lk__safetensors_close(file);
    assert_int_equal(lk__safetensors_open("/nowhere/x", &file), LK_ERR_IO);
    lk_error_clear();
    assert_int_equal(lk__safetensors_open("/", &file), LK_ERR_IO);
    lk_error_clear();
}

/* Opening a pipe without a writer must not block. */
static void waits_for_no_pipe(void **state)
{
    (void)state;
    lk_safetensors *file;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60);
    assert_int_equal(lk__safetensors_open(path, &file), LK_ERR_IO);
    alarm(0);
    assert_non_null(strstr(lk_error_message(), "is not a regular file"));
    lk_error_clear();
}

static void unwinds_without_memory(void **state)
{
    (void)state;
    lk_safetensors *file;
    write_header("{\"a\":" T("F32", "[4]", "[0,16]") "}", 16);
    for (failing f = fail_every(1); fail_next(&f);)
        stop_failing_with(&f, lk__safetensors_open(path, &file));
    lk__safetensors_close(file);
}

#define PATH_TEST(function) cmocka_unit_test_setup_teardown(function, make_path, remove_test_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PATH_TEST(reads_what_it_wrote),
        PATH_TEST(reads_other_floats),
        PATH_TEST(refuses_headers_that_lie),
        PATH_TEST(refuses_lengths_that_lie),
        PATH_TEST(refuses_deep_nesting),
        PATH_TEST(refuses_what_became_shorter),
        PATH_TEST(waits_for_no_pipe),
        PATH_TEST(unwinds_without_memory),
        PATH_TEST(writes_no_header_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
