#include "core/device_spec.h"
#include "core/backend.h"
#include "core/text.h"
#include "lockstep/device.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_INDEX = 65535 };

#define WHAT_IS_RIGHT "a device is KIND, KIND:INDEX, NxKIND, NxKIND:INDEX or N, as in cpu, cpu:1, 2xcpu"

/* One item of the list. */
typedef struct item {
    const char *text;
    int length;
} item;

typedef struct parser {
    lk_device_spec_entry *entries;
    int capacity;
    int count;
} parser;

static int device_spec_count_digits(const char *text, int length)
{
    int n = 0;
    while (n < length && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

/* Returns the value of `length` digits, or `most` + 1 if it is more than `most`. */
static int device_spec_number_at_most(const char *digits, int length, int most)
{
    int value = 0;
    for (int i = 0; i < length && value <= most; i++)
        value = 10 * value + (digits[i] - '0');
    return value <= most ? value : most + 1;
}

/* Returns the backend that a bare number of devices stands for. */
static const lk_backend *device_spec_best_backend(void)
{
    for (int i = 0; lk__backends[i]; i++)
        if (lk__backends[i]->may_be_best && lk__backends[i]->may_be_best() && lk__backends[i]->available() > 0)
            return lk__backends[i];
    for (int i = 0; lk__backends[i]; i++)
        if (lk__backends[i]->available() > 0)
            return lk__backends[i];
    return NULL;
}

static lk_status device_spec_find_kind(item it, const char *kind, int length, const lk_backend **backend)
{
    for (int i = 0; lk__backends[i]; i++) {
        *backend = lk__backends[i];
        if ((int)strlen((*backend)->kind) == length && memcmp((*backend)->kind, kind, (size_t)length) == 0)
            return LK_OK;
    }
    char kinds[128] = "";
    for (int i = 0; lk__backends[i]; i++) {
        if (lk__backends[i]->available() <= 0)
            continue;
        lk__text_append(kinds, sizeof kinds, *kinds ? ", " : "");
        lk__text_append(kinds, sizeof kinds, lk__backends[i]->kind);
    }
    LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': unknown kind '%.*s': devices that can be used here are %s", it.length,
            it.text, length, kind, kinds);
}

/* Parses the digits before 'x', or the whole item. */
static lk_status device_spec_parse_count(item it, int digits, int *n)
{
    *n = device_spec_number_at_most(it.text, digits, LK_MAX_DEVICES);
    if (*n < 1 || *n > LK_MAX_DEVICES)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': the number of devices must be 1 to %d, not %.*s", it.length, it.text,
                LK_MAX_DEVICES, digits, it.text);
    return LK_OK;
}

static lk_status device_spec_parse_index(item it, const char *text, int length, int *index)
{
    if (length == 0 || device_spec_count_digits(text, length) < length)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': after ':' comes the device's number, from 0, as in cpu:0, not '%.*s'",
                it.length, it.text, length, text);
    *index = device_spec_number_at_most(text, length, MAX_INDEX);
    if (*index > MAX_INDEX)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': the device's number must be 0 to %d", it.length, it.text, MAX_INDEX);
    return LK_OK;
}

/* Adds n devices with numbers `index`, `index` + 1, …; with `same_index`, all of them have number `index`. */
static lk_status device_spec_add(parser *p, const lk_backend *backend, int n, int index, bool same_index)
{
    if (n > p->capacity - p->count)
        LK_FAIL(LK_ERR_ARGUMENT, "device: more than %d devices are named, which is the most", p->capacity);
    for (int i = 0; i < n && p->entries; i++)
        p->entries[p->count + i] = (lk_device_spec_entry){backend->kind, same_index ? index : index + i};
    p->count += n;
    return LK_OK;
}

static lk_status device_spec_check_start(item it)
{
    if (it.length == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "device: an empty name; " WHAT_IS_RIGHT);
    if (memchr(it.text, '*', (size_t)it.length))
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': write x, not *, which shells expand: 2xcpu", it.length, it.text);
    if (it.text[0] == '-' || it.text[0] == '+')
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': a number of devices has no sign; " WHAT_IS_RIGHT, it.length, it.text);
    return LK_OK;
}

static lk_status device_spec_parse_item(parser *p, item it)
{
    LK_TRY(device_spec_check_start(it));
    int n = 1, digits = device_spec_count_digits(it.text, it.length);
    const char *kind = it.text;
    if (digits > 0) {
        LK_TRY(device_spec_parse_count(it, digits, &n));
        if (digits == it.length) {
            const lk_backend *best = device_spec_best_backend();
            if (!best)
                LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': no device is present", it.length, it.text);
            return device_spec_add(p, best, n, 0, false);
        }
        if (it.text[digits] != 'x' || digits + 1 == it.length)
            LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': after a number of devices comes x and their kind, as in %dxcpu",
                    it.length, it.text, n);
        kind += digits + 1;
    }
    int left = it.length - (int)(kind - it.text);
    const char *colon = memchr(kind, ':', (size_t)left);
    int length = colon ? (int)(colon - kind) : left;
    const lk_backend *backend;
    LK_TRY(device_spec_find_kind(it, kind, length, &backend));
    int index = 0;
    if (colon)
        LK_TRY(device_spec_parse_index(it, colon + 1, left - length - 1, &index));
    return device_spec_add(p, backend, n, index, colon != NULL);
}

lk_status lk__device_spec_parse(const char *spec, lk_device_spec_entry *entries, int capacity, int *count)
{
    *count = 0;
    if (!spec)
        LK_FAIL(LK_ERR_ARGUMENT, "device: NULL is no device; " WHAT_IS_RIGHT);
    parser p = {.entries = entries, .capacity = capacity};
    for (const char *text = spec;; text++) {
        int length = (int)strcspn(text, ",");
        LK_TRY(device_spec_parse_item(&p, (item){text, length}));
        text += length;
        if (*text == '\0')
            break;
    }
    *count = p.count;
    return LK_OK;
}

const char *lk_devices_best_kind(void)
{
    const lk_backend *best = device_spec_best_backend();
    return best ? best->kind : NULL;
}

lk_status lk_devices_count(const char *spec, int *count)
{
    return lk__device_spec_parse(spec, NULL, LK_MAX_DEVICES, count);
}
