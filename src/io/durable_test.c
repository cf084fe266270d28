/* Tests of exchanging and removing folders, and of names that are links or streams. */
#include "io/io_testing.h"

#include "io/append_file.h"
#include "io/durable.h"
#include "lockstep/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>

/* --- a file system without exchange ------------------------------------------------------------------------------ */

static bool can_do_less;
static int (*between)(const char *from, const char *to); /* called instead of the second rename of an exchange */

/* Replaces the C library's function and fails as on NFS. */
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (can_do_less && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int fsync(int fd)
{
    struct stat about;
    if (can_do_less && fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    struct stat about;
    int (*meanwhile)(const char *, const char *) = between;
    if (meanwhile && stat(to, &about) != 0 && strcmp(strrchr(from, '/'), "/new") == 0) {
        between = NULL;
        if (meanwhile(from, to) != 0)
            return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int two_folders(void **state)
{
    if (make_test_dir(state) != 0 || mkdir(in_dir("new"), 0700) != 0 || mkdir(in_dir("place"), 0700) != 0)
        return -1;
    put_file(in_dir("new/file"), "new");
    put_file(in_dir("place/file"), "old");
    can_do_less = true;
    return 0;
}

static int remove_folders(void **state)
{
    can_do_less = false;
    between = NULL;
    return remove_test_dir(state);
}

static void changed_places(void)
{
    assert_contents(in_dir("place/file"), "new");
    assert_contents(in_dir("new/file"), "old");
    assert_int_equal(files_in_dir(test_dir), 2);
}

static void folders_change_places_anywhere(void **state)
{
    (void)state;
    bool swapped;
    assert_int_equal(lk__durable_rename_folder(in_dir("new"), in_dir("place"), &swapped), LK_OK);
    assert_true(swapped);
    changed_places();
}

static int take_back(const char *from, const char *to)
{
    (void)from;
    lk__durable_restore(to);
    assert_contents(in_dir("place/file"), "old");
    return 0;
}

/* Another program restores the folder in the middle of the exchange. */
static void who_takes_it_back_does_not_matter(void **state)
{
    (void)state;
    bool swapped;
    between = take_back;
    assert_int_equal(lk__durable_rename_folder(in_dir("new"), in_dir("place"), &swapped), LK_OK);
    changed_places();
}

static int stop(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EIO;
    return -1;
}

static void what_cannot_be_replaced_stays(void **state)
{
    (void)state;
    bool swapped;
    between = stop;
    assert_int_equal(lk__durable_rename_folder(in_dir("new"), in_dir("place"), &swapped), LK_ERR_IO);
    lk_error_clear();
    assert_contents(in_dir("place/file"), "old");
    assert_contents(in_dir("new/file"), "new");
}

/* --- removing ----------------------------------------------------------------------------------------------------- */

static void of_a_link_the_link_alone_goes(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("kept"), 0700), 0);
    put_file(in_dir("kept/file"), "kept");
    assert_int_equal(symlink("kept", in_dir("link")), 0);
    assert_int_equal(symlink("nowhere", in_dir("lost")), 0);
    assert_int_equal(lk__remove_folder(in_dir("link")), LK_OK);
    assert_int_equal(lk__remove_folder(in_dir("lost")), LK_OK);
    assert_int_equal(files_in_dir(test_dir), 1);
    assert_contents(in_dir("kept/file"), "kept");
    assert_int_equal(lk__remove_folder(in_dir("kept")), LK_OK);
    assert_int_equal(files_in_dir(test_dir), 0);
}

/* Both functions that replace a whole file keep its permissions, and write through a link and into a stream. */
static void permissions_links_and_streams_stay(void **state)
{
    (void)state;
    lk_status (*const writes[])(const char *, const void *, size_t) = {lk__durable_write, lk__replace_file};
    struct stat about;
    assert_int_equal(mkdir(in_dir("there"), 0700), 0);
    assert_int_equal(symlink("there/target", in_dir("link")), 0);
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    for (int w = 0; w < 2; w++) {
        char got[8] = "";
        put_file(in_dir("there/target"), "old");
        assert_int_equal(chmod(in_dir("there/target"), 0640 - w * 040), 0);
        assert_int_equal(writes[w](in_dir("link"), "new", 3), LK_OK);
        assert_int_equal(stat(in_dir("link"), &about), 0);
        assert_int_equal(about.st_mode & 07777, 0640 - w * 040);
        assert_int_equal(lstat(in_dir("link"), &about), 0);
        assert_true(S_ISLNK(about.st_mode));
        assert_contents(in_dir("there/target"), "new");
        assert_int_equal(files_in_dir(in_dir("there")), 1);
        assert_int_equal(unlink(in_dir("there/target")), 0);
        assert_int_equal(writes[w](in_dir("link"), "new", 3), LK_ERR_IO);
        assert_non_null(strstr(lk_error_message(), "link: leads nowhere: No such file"));
        lk_error_clear();

        assert_int_equal(writes[w](in_dir("pipe"), "new", 3), LK_ERR_IO); /* nobody reads it */
        lk_error_clear();
        int reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        assert_int_equal(writes[w](in_dir("pipe"), "new", 3), LK_OK);
        assert_int_equal(read(reader, got, sizeof got), 3);
        assert_string_equal(got, "new");
        close(reader);
        assert_int_equal(lstat(in_dir("pipe"), &about), 0);
        assert_true(S_ISFIFO(about.st_mode));

        assert_int_equal(writes[w](in_dir("there"), "new", 3), LK_ERR_IO);
        assert_non_null(strstr(lk_error_message(), "there: cannot be written: Is a directory"));
        lk_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_change_places_anywhere, two_folders, remove_folders),
        cmocka_unit_test_setup_teardown(who_takes_it_back_does_not_matter, two_folders, remove_folders),
        cmocka_unit_test_setup_teardown(what_cannot_be_replaced_stays, two_folders, remove_folders),
        FOLDER_TEST(of_a_link_the_link_alone_goes),
        FOLDER_TEST(permissions_links_and_streams_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
