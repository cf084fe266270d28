/* Writes event files for TensorBoard. The field numbers are from TensorFlow's event.proto, summary.proto,
 * histogram.proto, tensor.proto, tensor_shape.proto and types.proto. The framing is that of its record_writer.h:
 * length, CRC of the length, data, CRC of the data. Each CRC is masked, because a CRC over data that contain their own
 * CRC is weak. */
#include "io/records/events.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/records/crc32c.h"
#include "io/records/protobuf.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum event_field { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum summary_field { SUMMARY_VALUE = 1 };
enum value_field { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTO = 5, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum metadata_field { METADATA_PLUGIN_DATA = 1, METADATA_DATA_CLASS = 4, PLUGIN_DATA_NAME = 1, DATA_CLASS_TENSOR = 2 };
enum tensor_field { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, DT_STRING = 7 };
enum histogram_field {
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SUM_SQUARES = 5,
    HISTOGRAM_LIMIT = 6,
    HISTOGRAM_BUCKET = 7
};
enum { BUCKETS = 30, HOST_BYTES = 256 };

struct lk_event_writer {
    lk_append_file file;
    lk_bytes event, record;
};

/* Offsets at which the event's summary, and the value inside it, begin. */
typedef struct open_value {
    size_t summary, value;
} open_value;

static uint32_t event_file_masked_crc(const void *data, size_t size)
{
    uint32_t crc = lk__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static lk_status event_file_write(lk_event_writer *writer)
{
    const lk_bytes *event = &writer->event;
    lk_bytes *record = &writer->record;
    LK_TRY(lk__bytes_status(event));
    lk__bytes_clear(record);
    lk__put_u64(record, event->size);
    if (!record->failed)
        lk__put_u32(record, event_file_masked_crc(record->data, record->size));
    lk__bytes_put(record, event->data, event->size);
    lk__put_u32(record, event_file_masked_crc(event->data, event->size));
    LK_TRY(lk__bytes_status(record));
    return lk__append(&writer->file, record->data, record->size);
}

static double event_file_wall_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static lk_status event_file_begin_value(lk_event_writer *writer, const char *tag, int64_t step, double wall_time,
                                        open_value *open)
{
    if (!tag || !*tag)
        LK_FAIL(LK_ERR_ARGUMENT, "event file: a tag is missing");
    lk_bytes *event = &writer->event;
    lk__bytes_clear(event);
    lk__pb_double(event, EVENT_WALL_TIME, wall_time != 0 ? wall_time : event_file_wall_clock());
    lk__pb_varint(event, EVENT_STEP, (uint64_t)step);
    open->summary = lk__pb_begin(event, EVENT_SUMMARY);
    open->value = lk__pb_begin(event, SUMMARY_VALUE);
    lk__pb_string(event, VALUE_TAG, tag);
    return LK_OK;
}

static lk_status event_file_end_value(lk_event_writer *writer, open_value open)
{
    lk__pb_end(&writer->event, open.value);
    lk__pb_end(&writer->event, open.summary);
    return event_file_write(writer);
}

/* --- the file ---------------------------------------------------------------------------------------------------- */

/* The last number of the name tells apart the writers that one process opens within a second. */
static lk_status event_file_open(lk_event_writer *writer, const char *dir)
{
    static atomic_uint files;
    char host[HOST_BYTES] = "", path[PATH_MAX];
    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        snprintf(host, sizeof host, "localhost");
    for (char *slash = host; (slash = strchr(slash, '/'));)
        *slash = '-';
    for (;;) {
        int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.%u", dir, (long long)time(NULL),
                              host, (long)getpid(), atomic_fetch_add(&files, 1));
        if (length >= (int)sizeof path)
            LK_FAIL(LK_ERR_ARGUMENT, "the event file's path has more than %d bytes: %.60s…", PATH_MAX - 1, dir);
        if (access(path, F_OK) == 0)
            continue;
        return lk__append_open(&writer->file, path, O_EXCL);
    }
}

lk_event_writer *lk_event_writer_new(const char *dir)
{
    if (lk_make_directory(dir) != LK_OK)
        return NULL;
    lk_event_writer *writer = lk__calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->file.fd = -1;
    lk_status status;
    LK_TRY_GOTO(event_file_open(writer, dir));
    lk__pb_double(&writer->event, EVENT_WALL_TIME, event_file_wall_clock());
    lk__pb_string(&writer->event, EVENT_FILE_VERSION, "brain.Event:2");
    LK_TRY_GOTO(event_file_write(writer));
    return writer;
fail:
    lk_event_writer_release(writer);
    return NULL;
}

lk_event_writer *lk__event_writer_reopen(const char *path, int64_t bytes)
{
    lk_event_writer *writer = lk__calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->file.fd = -1;
    if (lk__append_open(&writer->file, path, 0) == LK_OK && lk__append_cut(&writer->file, bytes) == LK_OK)
        return writer;
    lk_event_writer_release(writer);
    return NULL;
}

lk_file_mark lk__event_writer_mark(lk_event_writer *writer)
{
    return lk__append_mark(&writer->file);
}

void lk_event_writer_release(lk_event_writer *writer)
{
    if (!writer)
        return;
    lk__append_close(&writer->file);
    lk__bytes_free(&writer->event);
    lk__bytes_free(&writer->record);
    lk__free(writer);
}

const char *lk_event_writer_path(const lk_event_writer *writer)
{
    return writer->file.path;
}

lk_status lk_event_writer_flush(lk_event_writer *writer)
{
    return lk__append_sync(&writer->file);
}

/* --- scalars and texts ------------------------------------------------------------------------------------------- */

lk_status lk_event_scalar(lk_event_writer *writer, const char *tag, int64_t step, double value, double wall_time)
{
    open_value open;
    LK_TRY(event_file_begin_value(writer, tag, step, wall_time, &open));
    lk__pb_float(&writer->event, VALUE_SIMPLE, (float)value);
    return event_file_end_value(writer, open);
}

/* Writes a tensor of rank 0 with one string, for the plugin "text". */
lk_status lk_event_text(lk_event_writer *writer, const char *tag, int64_t step, const char *markdown, double wall_time)
{
    open_value open;
    if (!markdown)
        LK_FAIL(LK_ERR_ARGUMENT, "event file: a text is missing");
    LK_TRY(event_file_begin_value(writer, tag, step, wall_time, &open));
    lk_bytes *event = &writer->event;
    size_t tensor = lk__pb_begin(event, VALUE_TENSOR);
    lk__pb_varint(event, TENSOR_DTYPE, DT_STRING);
    lk__pb_end(event, lk__pb_begin(event, TENSOR_SHAPE));
    lk__pb_string(event, TENSOR_STRING, markdown);
    lk__pb_end(event, tensor);
    size_t metadata = lk__pb_begin(event, VALUE_METADATA);
    size_t plugin = lk__pb_begin(event, METADATA_PLUGIN_DATA);
    lk__pb_string(event, PLUGIN_DATA_NAME, "text");
    lk__pb_end(event, plugin);
    lk__pb_varint(event, METADATA_DATA_CLASS, DATA_CLASS_TENSOR);
    lk__pb_end(event, metadata);
    return event_file_end_value(writer, open);
}

/* --- histograms -------------------------------------------------------------------------------------------------- */

typedef struct histogram {
    double min, max, num, sum, sum_squares;
    double limit[BUCKETS], bucket[BUCKETS]; /* limit: the right end */
    size_t buckets;
} histogram;

static void event_file_measure_histogram(histogram *h, const float *values, int64_t count)
{
    h->min = INFINITY;
    h->max = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        if (!isfinite(value))
            continue;
        h->min = fmin(h->min, value);
        h->max = fmax(h->max, value);
        h->num++;
        h->sum += value;
        h->sum_squares += value * value;
    }
}

static void event_file_fill_histogram(histogram *h, const float *values, int64_t count)
{
    h->buckets = h->min < h->max ? BUCKETS : 1;
    double width = (h->max - h->min) / (double)h->buckets;
    for (size_t i = 0; i < h->buckets; i++)
        h->limit[i] = i + 1 < h->buckets ? h->min + width * (double)(i + 1) : h->max;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        size_t index = width > 0 ? (size_t)((values[i] - h->min) / width) : 0;
        h->bucket[index < h->buckets ? index : h->buckets - 1]++;
    }
}

lk_status lk_event_histogram(lk_event_writer *writer, const char *tag, int64_t step, const float *values, int64_t count,
                             double wall_time)
{
    histogram h = {0};
    event_file_measure_histogram(&h, values, count);
    if (h.num > 0)
        event_file_fill_histogram(&h, values, count);
    else
        h.min = h.max = 0;

    open_value open;
    LK_TRY(event_file_begin_value(writer, tag, step, wall_time, &open));
    lk_bytes *event = &writer->event;
    size_t histo = lk__pb_begin(event, VALUE_HISTO);
    lk__pb_double(event, HISTOGRAM_MIN, h.min);
    lk__pb_double(event, HISTOGRAM_MAX, h.max);
    lk__pb_double(event, HISTOGRAM_NUM, h.num);
    lk__pb_double(event, HISTOGRAM_SUM, h.sum);
    lk__pb_double(event, HISTOGRAM_SUM_SQUARES, h.sum_squares);
    lk__pb_doubles(event, HISTOGRAM_LIMIT, h.limit, h.buckets);
    lk__pb_doubles(event, HISTOGRAM_BUCKET, h.bucket, h.buckets);
    lk__pb_end(event, histo);
    return event_file_end_value(writer, open);
}
