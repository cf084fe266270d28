#include "export/output.h"

#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static lk_status refuse(const lk__output *output, const char *what)
{
    LK_FAIL(LK_ERR_IO, "%s: cannot be %s: %s", output->path, what, strerror(errno));
}

lk_status lk__output_open(lk__output *output, const char *path)
{
    *output = (lk__output){.path = path};
    int size = snprintf(output->beside, sizeof output->beside, "%s.%ld.tmp", path, (long)getpid());
    if (size < 0 || (size_t)size >= sizeof output->beside)
        LK_FAIL(LK_ERR_ARGUMENT, "the path %.40s... is too long: %d bytes at most", path, PATH_MAX - 32);
    output->file = fopen(output->beside, "wbe");
    return output->file ? LK_OK : refuse(output, "written");
}

lk_status lk__output_write(lk__output *output, const void *data, size_t size)
{
    return fwrite(data, 1, size, output->file) == size ? LK_OK : refuse(output, "written");
}

lk_status lk__output_close(lk__output *output, lk_status status)
{
    if (!output->file)
        return status;
    if (status == LK_OK && (fflush(output->file) != 0 || fsync(fileno(output->file)) != 0))
        status = refuse(output, "brought to disk");
    if (fclose(output->file) != 0 && status == LK_OK)
        status = refuse(output, "written");
    output->file = NULL;
    if (status == LK_OK && rename(output->beside, output->path) != 0)
        status = refuse(output, "put in its place");
    if (status != LK_OK)
        unlink(output->beside);
    return status;
}

lk_status lk__output_file(const char *path, const void *data, size_t size)
{
    lk__output output;
    LK_TRY(lk__output_open(&output, path));
    return lk__output_close(&output, lk__output_write(&output, data, size));
}
