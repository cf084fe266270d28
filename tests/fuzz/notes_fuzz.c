/* Receives notes from other ranks. Each piece of the input is a byte with the length of a note's text, its is_parting,
 * rank and status, a byte each, and the text. */
#include "fuzz.h"

#include "dist/process/group_notes.h"

#include <string.h>

enum { RANKS = 3 };

static lk_note *receiving;
static const uint8_t *at, *end;

static lk_messages_status begin(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                lk_message *message, char error[LK_MESSAGES_ERROR])
{
    (void)message, (void)error;
    FUZZ_CHECK(channel == LK_CHANNEL_NOTES && bytes == sizeof(lk_note));
    FUZZ_CHECK(is_sent ? other > 0 && other < RANKS : other == LK_MESSAGES_ANYBODY);
    if (is_sent)
        fuzz_touch(data, bytes);
    else
        receiving = data;
    return LK_MESSAGES_OK;
}

static lk_messages_status done(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR])
{
    (void)messages, (void)n, (void)error;
    *all = !receiving; /* sending is done at once */
    if (!receiving || end - at < 4)
        return LK_MESSAGES_OK;
    size_t size = at[0] == 255 ? LK_NOTE_TEXT : at[0];
    *receiving = (lk_note){.is_parting = at[1], .rank = (int8_t)at[2], .status = (int8_t)at[3]};
    at += 4;
    size = size < (size_t)(end - at) ? size : (size_t)(end - at);
    memset(receiving->text, 'x', size == 0 ? LK_NOTE_TEXT : 0);
    memcpy(receiving->text, at, size);
    at += size;
    receiving = NULL;
    *all = true;
    return LK_MESSAGES_OK;
}

static void cancel(lk_message *message)
{
    (void)message;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lk_messages table = {.begin = begin, .done = done, .cancel = cancel};
    lk_notes notes = {0};
    at = data;
    end = data + size;
    FUZZ_CHECK(lk__notes_open(&notes, &table, 0, RANKS) == LK_OK);
    while (end - at >= 4 && !lk__notes_look(&notes))
        FUZZ_CHECK(notes.parted >= 0);
    if (lk__notes_are_bad(&notes)) {
        FUZZ_CHECK(notes.first.status > LK_OK && notes.first.status < LK_STATUS_COUNT);
        FUZZ_CHECK(memchr(notes.first.text, '\0', sizeof notes.first.text));
    }
    lk__notes_close(&notes);
    return 0;
}
