#include "report/record_file.h"

#include "base/status.h"

#include <errno.h>
#include <sys/stat.h>

lk_status lk__record_load(const char *path, size_t most, lk_bytes *text)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* reading a pipe could block */
        LK_FAIL(LK_ERR_IO, "%s: is no file", path);
    int error = lk__bytes_read_file(text, path, most);
    LK_TRY(lk__bytes_status(text));
    if (error)
        LK_FAIL(error == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
    if (text->size > most)
        LK_FAIL(LK_ERR_FORMAT, "%s: has more than %zu bytes", path, most);
    return LK_OK;
}

lk_status lk__record_parse(const char *path, long long number, const char *text, size_t length, json_t **object)
{
    json_error_t error;
    *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!*object && number > 0)
        LK_FAIL(LK_ERR_FORMAT, "%s:%lld: is not JSON: %.80s", path, number, error.text);
    if (!*object)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: is not JSON: %.80s", path, error.line, error.text);
    return LK_OK;
}
