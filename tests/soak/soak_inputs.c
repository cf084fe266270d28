#include "soak_inputs.h"

#include "soak_random.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

enum { CLASSES = 10, SIDE = 24, TRAIN_IMAGES = 320, TEST_IMAGES = 70, MAX_PIXELS = 3 * 32 * 32 };

typedef struct inputs {
    const char *folder;
    soak_random random;
    bool has_bad; /* rows and pictures that --skip-bad leaves out */
    bool failed;
} inputs;

/* Makes the folders of a path below the folder, then opens it. */
static FILE *inputs_open(inputs *in, const char *format, ...) LK_PRINTF(2, 3);

static FILE *inputs_open(inputs *in, const char *format, ...)
{
    char path[1024], name[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    snprintf(path, sizeof path, "%s/%s", in->folder, name);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    FILE *file = fopen(path, "we");
    if (!file) {
        fprintf(stderr, "soak: %s: %s\n", path, strerror(errno));
        in->failed = true;
    }
    return file;
}

static void inputs_close(inputs *in, FILE *file)
{
    if (file && (ferror(file) | fclose(file)) != 0)
        in->failed = true;
}

/* An image of its class: a gradient whose direction the label decides, with noise. */
static void inputs_draw_image(inputs *in, int label, int channels, int side, unsigned char *pixels)
{
    for (int i = 0; i < channels * side * side; i++) {
        int x = i % side, y = i / side % side;
        int value = (label & 1 ? x : y) * 255 / side + label * 12;
        pixels[i] = (unsigned char)(value / 2 + (int)(soak_random_bits(&in->random) & 63));
    }
}

static void inputs_write_csv(inputs *in, const char *name, int images)
{
    unsigned char pixels[MAX_PIXELS];
    FILE *file = inputs_open(in, "csv/%s", name);
    if (!file)
        return;
    fprintf(file, "label");
    for (int y = 1; y <= SIDE; y++)
        for (int x = 1; x <= SIDE; x++)
            fprintf(file, ",%dx%d", y, x);
    for (int i = 0; i < images; i++) {
        inputs_draw_image(in, i % CLASSES, 1, SIDE, pixels);
        fprintf(file, "\n%d", i % CLASSES);
        for (int p = 0; p < SIDE * SIDE; p++)
            fprintf(file, ",%d", pixels[p]);
        if (in->has_bad && i % 50 == 7)
            fprintf(file, "\n3,4,x");
    }
    fprintf(file, "\n");
    inputs_close(in, file);
}

static void inputs_write_idx(inputs *in, const char *folder, const char *part, int images, int side)
{
    unsigned char pixels[MAX_PIXELS];
    FILE *file = inputs_open(in, "%s/%s-images-idx3-ubyte", folder, part);
    if (file) {
        const unsigned char header[16] = {0,
                                          0,
                                          8,
                                          3,
                                          0,
                                          0,
                                          (unsigned char)(images >> 8),
                                          (unsigned char)images,
                                          0,
                                          0,
                                          0,
                                          (unsigned char)side,
                                          0,
                                          0,
                                          0,
                                          (unsigned char)side};
        fwrite(header, 1, sizeof header, file);
        for (int i = 0; i < images; i++) {
            inputs_draw_image(in, i % CLASSES, 1, side, pixels);
            fwrite(pixels, 1, (size_t)side * (size_t)side, file);
        }
        inputs_close(in, file);
    }
    file = inputs_open(in, "%s/%s-labels-idx1-ubyte", folder, part);
    if (file) {
        const unsigned char header[8] = {0, 0, 8, 1, 0, 0, (unsigned char)(images >> 8), (unsigned char)images};
        fwrite(header, 1, sizeof header, file);
        for (int i = 0; i < images; i++)
            fputc(i % CLASSES, file);
        inputs_close(in, file);
    }
}

static void inputs_write_pictures(inputs *in, const char *part, int images)
{
    unsigned char pixels[MAX_PIXELS];
    for (int i = 0; i < images; i++) {
        bool is_color = i % 7 == 0, is_bad = in->has_bad && i % 40 == 11;
        FILE *file = inputs_open(in, "pictures/%s/c%d/%03d.%s", part, i % CLASSES, i, is_color ? "ppm" : "pgm");
        if (!file)
            return;
        inputs_draw_image(in, i % CLASSES, is_color ? 3 : 1, SIDE, pixels);
        fprintf(file, "P%d\n%d %d\n255\n", is_color ? 6 : 5, SIDE, SIDE);
        fwrite(pixels, 1, (size_t)SIDE * SIDE * (is_color ? 3 : 1) / (is_bad ? 2 : 1), file);
        inputs_close(in, file);
    }
}

static void inputs_write_cifar(inputs *in, const char *name, int images)
{
    unsigned char pixels[MAX_PIXELS];
    FILE *file = inputs_open(in, "cifar/%s", name);
    for (int i = 0; file && i < images; i++) {
        inputs_draw_image(in, i % CLASSES, 3, 32, pixels);
        fputc(i % CLASSES, file);
        fwrite(pixels, 1, sizeof pixels, file);
    }
    inputs_close(in, file);
}

/* Files of machines with one to MOST places. */
static void inputs_write_hosts(inputs *in)
{
    enum { MOST = 8 };
    for (int places = 1; places <= MOST; places++) {
        FILE *file = inputs_open(in, "hosts-%d", places);
        if (file)
            fprintf(file, "# this one\nlocalhost slots=%d\n", places);
        inputs_close(in, file);
    }
}

bool soak_inputs_write(const soak_case *given, const char *folder)
{
    const char *data = soak_settings_value(&given->settings, "data");
    const char *bad = soak_settings_value(&given->settings, "skip-bad");
    inputs in = {.folder = folder, .random = {given->seed}, .has_bad = bad && strcmp(bad, "true") == 0};
    mkdir(folder, 0777);
    inputs_write_hosts(&in);
    if (*given->model) {
        FILE *file = inputs_open(&in, "net.lk");
        if (file)
            fputs(given->model, file);
        inputs_close(&in, file);
    }
    if (!data)
        return !in.failed;
    if (strcmp(data, "../inputs/csv") == 0) {
        inputs_write_csv(&in, "train.csv", TRAIN_IMAGES);
        inputs_write_csv(&in, "test.csv", TEST_IMAGES);
    } else if (strcmp(data, "../inputs/idx") == 0) {
        inputs_write_idx(&in, "idx", "train", TRAIN_IMAGES, SIDE);
        inputs_write_idx(&in, "idx", "t10k", TEST_IMAGES, SIDE);
    } else if (strcmp(data, "../inputs/pictures") == 0) {
        inputs_write_pictures(&in, "train", TRAIN_IMAGES);
        inputs_write_pictures(&in, "val", TEST_IMAGES);
    } else if (strcmp(data, "../inputs/cifar") == 0) {
        char name[32];
        for (int i = 1; i <= 5; i++) {
            snprintf(name, sizeof name, "data_batch_%d.bin", i);
            inputs_write_cifar(&in, name, TRAIN_IMAGES / 5);
        }
        inputs_write_cifar(&in, "test_batch.bin", TEST_IMAGES);
    } else if (strcmp(data, "synthetic") != 0) {
        inputs_write_idx(&in, "named/fashion-mnist", "train", TRAIN_IMAGES, 28);
        inputs_write_idx(&in, "named/fashion-mnist", "t10k", TEST_IMAGES, 28);
    }
    return !in.failed;
}
