#include "core/device_spec.h"

#include "core/backend.h"
#include "lockstep/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INDEX = 65535 };

#define WHAT_IS_RIGHT "a device is KIND, KIND:INDEX, NxKIND, NxKIND:INDEX or N, as in cpu, cpu:1, 2xcpu"

/* One item between commas. */
typedef struct item {
    const char *text;
    int length;
} item;

typedef struct parser {
    lk_device_spec_entry *entries;
    int capacity;
    int count;
} parser;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int count_digits(const char *text, int length)
{
    int n = 0;
    while (n < length && is_digit(text[n]))
        n++;
    return n;
}

/* The value of `length` digits, or `most` + 1 where it is more than `most`. */
static int number_at_most(const char *digits, int length, int most)
{
    int value = 0;
    for (int i = 0; i < length && value <= most; i++)
        value = 10 * value + (digits[i] - '0');
    return value <= most ? value : most + 1;
}

static void list_kinds(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; lk__backends[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", lk__backends[i]->kind);
}

static const lk_backend *best_backend(void)
{
    for (int i = 0; lk__backends[i]; i++)
        if (lk__backends[i]->may_be_best && lk__backends[i]->may_be_best() && lk__backends[i]->available() > 0)
            return lk__backends[i];
    for (int i = 0; lk__backends[i]; i++)
        if (lk__backends[i]->available() > 0)
            return lk__backends[i];
    return NULL;
}

static lk_status find_kind(item it, const char *kind, int length, const lk_backend **backend)
{
    for (int i = 0; lk__backends[i]; i++) {
        *backend = lk__backends[i];
        if ((int)strlen((*backend)->kind) == length && memcmp((*backend)->kind, kind, (size_t)length) == 0)
            return LK_OK;
    }
    char kinds[128];
    list_kinds(kinds, sizeof kinds);
    LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': unknown kind '%.*s': this build has %s", it.length, it.text, length, kind,
            kinds);
}

/* The digits in front of 'x', or all there is. */
static lk_status parse_count(item it, int digits, int *n)
{
    *n = number_at_most(it.text, digits, LK_MAX_DEVICES);
    if (*n < 1 || *n > LK_MAX_DEVICES)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': the number of devices must be 1 to %d, not %.*s", it.length, it.text,
                LK_MAX_DEVICES, digits, it.text);
    return LK_OK;
}

static lk_status parse_index(item it, const char *text, int length, int *index)
{
    if (length == 0 || count_digits(text, length) < length)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': after ':' comes the device's number, from 0, as in cpu:0, not '%.*s'",
                it.length, it.text, length, text);
    *index = number_at_most(text, length, MAX_INDEX);
    if (*index > MAX_INDEX)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': the device's number must be 0 to %d", it.length, it.text, MAX_INDEX);
    return LK_OK;
}

/* n devices from `index` on, or all at `index`. */
static lk_status add(parser *p, const lk_backend *backend, int n, int index, bool same_index)
{
    if (n > p->capacity - p->count)
        LK_FAIL(LK_ERR_ARGUMENT, "device: more than %d devices are named, which is the most", p->capacity);
    for (int i = 0; i < n && p->entries; i++)
        p->entries[p->count + i] = (lk_device_spec_entry){backend->kind, same_index ? index : index + i};
    p->count += n;
    return LK_OK;
}

static lk_status add_of_best_kind(parser *p, item it, int n)
{
    const lk_backend *backend = best_backend();
    if (!backend)
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': no device is present", it.length, it.text);
    return add(p, backend, n, 0, false);
}

static lk_status check_characters(item it)
{
    if (it.length == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "device: an empty name; " WHAT_IS_RIGHT);
    if (memchr(it.text, '*', (size_t)it.length))
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': write x, not *, which shells expand: 2xcpu", it.length, it.text);
    if (it.text[0] == '-' || it.text[0] == '+')
        LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': a number of devices has no sign; " WHAT_IS_RIGHT, it.length, it.text);
    return LK_OK;
}

static lk_status parse_item(parser *p, item it)
{
    LK_TRY(check_characters(it));
    int n = 1, digits = count_digits(it.text, it.length);
    const char *kind = it.text;
    if (digits > 0) {
        LK_TRY(parse_count(it, digits, &n));
        if (digits == it.length)
            return add_of_best_kind(p, it, n);
        if (it.text[digits] != 'x' || digits + 1 == it.length)
            LK_FAIL(LK_ERR_ARGUMENT, "device '%.*s': after a number of devices comes x and their kind, as in %dxcpu",
                    it.length, it.text, n);
        kind += digits + 1;
    }
    int left = it.length - (int)(kind - it.text);
    const char *colon = memchr(kind, ':', (size_t)left);
    int length = colon ? (int)(colon - kind) : left;
    const lk_backend *backend;
    LK_TRY(find_kind(it, kind, length, &backend));
    int index = 0;
    if (colon)
        LK_TRY(parse_index(it, colon + 1, left - length - 1, &index));
    return add(p, backend, n, index, colon != NULL);
}

lk_status lk__device_spec_parse(const char *spec, lk_device_spec_entry *entries, int capacity, int *count)
{
    *count = 0;
    if (!spec)
        LK_FAIL(LK_ERR_ARGUMENT, "device: NULL is no device; " WHAT_IS_RIGHT);
    parser p = {.entries = entries, .capacity = capacity};
    for (const char *text = spec;; text++) {
        int length = (int)strcspn(text, ",");
        LK_TRY(parse_item(&p, (item){text, length}));
        text += length;
        if (*text == '\0')
            break;
    }
    *count = p.count;
    return LK_OK;
}

lk_status lk_devices_count(const char *spec, int *count)
{
    return lk__device_spec_parse(spec, NULL, LK_MAX_DEVICES, count);
}
