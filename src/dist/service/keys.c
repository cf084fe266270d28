#include "dist/service/keys.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "lockstep/record.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256, MOST_KEYS = 100000 };

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool keys_is_key(const char *text)
{
    static const char others[] = ".-:+=^!/*?&<>()[]{}@%$#";
    size_t n = 0;
    for (; text[n]; n++)
        if (!isalnum((unsigned char)text[n]) && !strchr(others, text[n]))
            return false;
    return n == LK_KEY_TEXT - 1;
}

/* Splits a line into its first two words, in place; false: the line is empty or a comment. */
static bool keys_split_line(char *line, char **first, char **second)
{
    char *next;
    *first = strtok_r(line, " \t\r\n", &next);
    *second = *first ? strtok_r(NULL, " \t\r\n", &next) : NULL;
    return *first && **first != '#';
}

static lk_status keys_read_own(const char *path, int number, const char *name, const char *value, lk_keys *keys)
{
    bool is_public = strcmp(name, "public") == 0;
    if ((!is_public && strcmp(name, "secret") != 0) || !value || !keys_is_key(value))
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: expected `public` or `secret` and a key of %d characters", path, number,
                LK_KEY_TEXT - 1);
    strcpy(is_public ? keys->public_key : keys->secret_key, value);
    return LK_OK;
}

static lk_status keys_add_allowed(const char *path, int number, const char *key, const char *name, lk_keys *keys)
{
    if (!keys_is_key(key))
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: expected a public key of %d characters and a name", path, number,
                LK_KEY_TEXT - 1);
    if (keys->n == MOST_KEYS)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: more than %d keys", path, number, MOST_KEYS);
    lk_allowed_key *more = lk__realloc(keys->allowed, (size_t)keys->n + 1, sizeof *more);
    if (!more)
        return LK_ERR_MEMORY;
    keys->allowed = more;
    memset(&more[keys->n], 0, sizeof *more);
    strcpy(more[keys->n].key, key);
    snprintf(more[keys->n].name, LK_KEY_NAME, "%s", name ? name : "");
    keys->n++;
    return LK_OK;
}

/* Reads the beginning of a line, which holds all words that count, and skips the rest. */
static bool keys_next_line(FILE *file, char line[LINE])
{
    line[LINE - 2] = '\0';
    bool found = fgets(line, LINE, file);
    bool is_cut = found && line[LINE - 2] != '\0' && line[LINE - 2] != '\n';
    for (int c; is_cut && (c = getc(file)) != EOF && c != '\n';)
        ;
    return found;
}

typedef lk_status (*line_fn)(const char *path, int number, const char *first, const char *second, lk_keys *keys);

static lk_status keys_read_lines(const char *path, line_fn read_line, lk_keys *keys)
{
    FILE *file = fopen(path, "re");
    char line[LINE], *first, *second;
    if (!file)
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s; `lockstep keys` makes keys",
                path, strerror(errno));
    lk_status status = LK_OK;
    for (int number = 1; status == LK_OK && keys_next_line(file, line); number++)
        if (keys_split_line(line, &first, &second))
            status = read_line(path, number, first, second, keys);
    if (status == LK_OK && ferror(file))
        status = lk__fail(LK_ERR_IO, "%s: cannot be read", path);
    fclose(file);
    return status;
}

static lk_status keys_read_allowed(const char *path, lk_keys *keys)
{
    char allowed_path[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    snprintf(allowed_path, sizeof allowed_path, "%.*sallowed", folder, path);
    return keys_read_lines(allowed_path, keys_add_allowed, keys);
}

lk_status lk__keys_read(const char *path, lk_keys *keys)
{
    *keys = (lk_keys){.n = 0};
    lk_status status = keys_read_lines(path, keys_read_own, keys);
    if (status == LK_OK && (!*keys->public_key || !*keys->secret_key))
        status = lk__fail(LK_ERR_FORMAT, "%s: has no %s key", path, *keys->public_key ? "secret" : "public");
    if (status == LK_OK)
        status = keys_read_allowed(path, keys);
    if (status != LK_OK)
        lk__keys_free(keys);
    return status;
}

void lk__keys_free(lk_keys *keys)
{
    lk__free(keys->allowed);
    memset(keys, 0, sizeof *keys);
}

lk_status lk__keys_copy(const lk_keys *keys, lk_keys *copy)
{
    *copy = *keys;
    copy->allowed = lk__calloc((size_t)keys->n + 1, sizeof *copy->allowed);
    if (!copy->allowed)
        return LK_ERR_MEMORY;
    if (keys->n > 0)
        memcpy(copy->allowed, keys->allowed, (size_t)keys->n * sizeof *copy->allowed);
    return LK_OK;
}

const char *lk__keys_find_name(const lk_keys *keys, const char *public_key)
{
    for (int i = 0; i < keys->n; i++)
        if (strcmp(keys->allowed[i].key, public_key) == 0)
            return keys->allowed[i].name;
    return NULL;
}

const char *lk__keys_find_key(const lk_keys *keys, const char *name)
{
    for (int i = 0; i < keys->n; i++)
        if (strcmp(keys->allowed[i].name, name) == 0)
            return keys->allowed[i].key;
    return NULL;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static lk_status keys_check_name(const char *name)
{
    size_t n = strlen(name);
    bool good = n > 0 && n < LK_KEY_NAME && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    if (!good)
        LK_FAIL(LK_ERR_ARGUMENT, "keys: '%s' is no name; must be letters, digits, '-', '_' and '.', at most %d", name,
                LK_KEY_NAME - 1);
    return LK_OK;
}

/* Adds lines to a file. If its last line has no line break, as some editors leave it, it gets one. */
static lk_status keys_write_text(const char *path, int flags, mode_t mode, const char *text)
{
    char last;
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, mode);
    int error = fd < 0 ? errno : 0;
    if (error == EEXIST)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: is there already; another name, or remove it and its line in `allowed`", path);
    if (!error && lseek(fd, -1, SEEK_END) >= 0 && read(fd, &last, 1) == 1 && last != '\n')
        error = lk__write_whole(fd, "\n", 1);
    if (!error)
        error = lk__write_whole(fd, text, strlen(text));
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    if (error)
        LK_FAIL(LK_ERR_IO, "%s: cannot be written: %s", path, strerror(error));
    return LK_OK;
}

/* A second line of that name would never be found. */
static lk_status keys_check_unlisted(const char *path, const char *name)
{
    lk_keys keys = {.n = 0};
    lk_status status = access(path, F_OK) == 0 ? keys_read_lines(path, keys_add_allowed, &keys) : LK_OK;
    if (status == LK_OK && lk__keys_find_key(&keys, name))
        status = lk__fail(LK_ERR_ARGUMENT, "%s: lists a key called %s already; another name, or remove its line", path,
                          name);
    lk__keys_free(&keys);
    return status;
}

lk_status lk__keys_write(const char *folder, const char *name, const char *public_key, const char *secret_key)
{
    char path[PATH_MAX], allowed[PATH_MAX], text[LINE];
    LK_TRY(keys_check_name(name));
    LK_TRY(lk_make_directory(folder));
    snprintf(allowed, sizeof allowed, "%s/allowed", folder);
    if (snprintf(path, sizeof path, "%s/%s.key", folder, name) >= (int)sizeof path)
        LK_FAIL(LK_ERR_ARGUMENT, "keys: the path of the folder is too long: %.60s…", folder);
    if (access(path, F_OK) != 0) /* else the next call says so */
        LK_TRY(keys_check_unlisted(allowed, name));
    snprintf(text, sizeof text, "public %s\nsecret %s\n", public_key, secret_key);
    lk_status status = keys_write_text(path, O_EXCL, 0600, text);
    if (status == LK_OK) {
        snprintf(text, sizeof text, "%s %s\n", public_key, name);
        status = keys_write_text(allowed, 0, 0644, text);
    }
    if (status != LK_OK && status != LK_ERR_ARGUMENT) /* which means that somebody has this key already */
        unlink(path);
    return status;
}
