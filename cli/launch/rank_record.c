#include "cli/launch/rank_record.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(cli_record) == CLI_RECORD_BYTES, "a record has the size that readers expect");
_Static_assert(sizeof(cli_rank_end) <= CLI_RECORD_DATA && sizeof(lk_heart_report) <= CLI_RECORD_DATA,
               "these fit in one record");

static const char mark[CLI_RECORD_MARK] = "\036lkrank";

static bool rank_record_send_one(const cli_record *record)
{
    ssize_t written;
    do /* in one call: a pipe takes this many bytes without splitting them */
        written = write(STDERR_FILENO, record, sizeof *record);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)sizeof *record;
}

bool cli_record_send(int rank, cli_record_kind kind, const void *data, size_t bytes)
{
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < CLI_RECORD_DATA ? bytes - done : CLI_RECORD_DATA;
        cli_record record = {.rank = rank, .kind = kind, .bytes = (int)n};
        memcpy(record.mark, mark, sizeof mark);
        memcpy(record.data, (const char *)data + done, n);
        if (!rank_record_send_one(&record))
            return false;
    }
    return true;
}

static bool is_record(const cli_record *record)
{
    return memcmp(record->mark, mark, sizeof mark) == 0 && record->rank >= 0 && record->kind >= 0 &&
           record->kind < CLI_RECORD_KINDS && record->bytes >= 0 && record->bytes <= CLI_RECORD_DATA;
}

size_t cli_record_parse(const char *bytes, size_t n, void *user,
                        void (*on_record)(void *user, const cli_record *record),
                        void (*on_text)(void *user, const char *text, size_t bytes))
{
    size_t at = 0;
    while (at < n) {
        const char *begin = memchr(bytes + at, mark[0], n - at);
        size_t text = begin ? (size_t)(begin - (bytes + at)) : n - at;
        if (text > 0)
            on_text(user, bytes + at, text);
        at += text;
        if (n - at < sizeof(cli_record))
            return at;
        cli_record record;
        memcpy(&record, bytes + at, sizeof record);
        if (is_record(&record))
            on_record(user, &record);
        else
            on_text(user, bytes + at, 1);
        at += is_record(&record) ? sizeof record : 1;
    }
    return at;
}
