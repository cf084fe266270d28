#include "train/callbacks/row_file.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/callback_state.h"

lk_status lk__row_file_new(lk_row_file *file, const char *path, lk_row_format format)
{
    *file = (lk_row_file){.path = lk__strdup(path), .format = format};
    return file->path ? LK_OK : LK_ERR_MEMORY;
}

void lk__row_file_free(lk_row_file *file)
{
    lk_row_writer_release(file->writer);
    lk__free(file->path);
}

lk_status lk__row_file_open(lk_row_file *file)
{
    if (!file->writer)
        file->writer = lk_row_writer_new(file->path, file->format, false);
    return file->writer ? LK_OK : lk_error_status();
}

void lk__row_file_save(const lk_row_file *file, lk_state *state)
{
    if (file->writer)
        lk__state_set_mark(state, lk__row_writer_mark(file->writer));
}

lk_status lk__row_file_resume(lk_row_file *file, const lk_state *state)
{
    int64_t bytes;
    if (file->writer || !lk__state_has_mark(state, file->path, &bytes))
        return LK_OK;
    file->writer = lk__row_writer_reopen(file->path, file->format, bytes);
    return file->writer ? LK_OK : lk_error_status();
}

lk_field lk__mean_field(const char *name, lk_mean value)
{
    return value.count ? LK_REAL(name, lk_mean_value(value)) : LK_NONE(name);
}
