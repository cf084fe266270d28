/* Messages that are damaged, of another version, or no messages at all. */
#include "dist/service/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { KIND = 7 };

typedef struct body {
    int64_t a, b;
} body;

static lk_wire_first first;

static lk_mail message(void)
{
    body b = {1, 2};
    lk_frame frame = lk__wire_first(&first, KIND, 42, &b, sizeof b);
    return (lk_mail){.n = 2, .frames = {frame, {"four", 4}}};
}

static void refused(const lk_mail *mail, const char *message)
{
    body b;
    lk_error_clear();
    assert_int_equal(lk__wire_body(mail, KIND, "greeting", &b, sizeof b, 1, 1), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
}

static void what_was_sent_is_read(void **state)
{
    (void)state;
    lk_mail mail = message();
    lk_wire_header header;
    body b;
    const void *data;
    assert_int_equal(lk__wire_header(&mail, &header), LK_OK);
    assert_int_equal(header.number, 42);
    assert_int_equal(lk__wire_body(&mail, KIND, "greeting", &b, sizeof b, 1, 1), LK_OK);
    assert_int_equal(b.b, 2);
    assert_int_equal(lk__wire_frame(&mail, 0, "greeting", 4, &data), LK_OK);
    assert_memory_equal(data, "four", 4);
}

static void damaged_ones_are_named(void **state)
{
    (void)state;
    lk_mail none = {.n = 0}, mail = message();
    refused(&none, "message: 0 bytes are no header; it has 16");
    mail.frames[0].bytes = 15;
    refused(&mail, "message: 15 bytes are no header; it has 16");
    mail.frames[0].bytes = 31;
    refused(&mail, "message greeting: has 31 bytes; expected 32");
    mail = message();
    mail.n = 1;
    refused(&mail, "message greeting: 0 frames follow; expected 1 to 1");
    mail = message();
    first.header.magic = 0x20544547;
    refused(&mail, "message: begins with 20544547, not 4c4b5750: another program's");
    first.header.magic = __builtin_bswap32(LK_WIRE_MAGIC);
    refused(&mail, "message: from a machine with the other byte order");
    mail = message();
    first.header.version = 9;
    refused(&mail, "message: of version 9, and this process speaks 5: install the same version of both");
    mail = message();
    first.header.kind = 3;
    refused(&mail, "message greeting: is of kind 3; expected 7");
}

static void frames_of_another_size_are_named(void **state)
{
    (void)state;
    lk_mail mail = message();
    const void *data;
    assert_int_equal(lk__wire_frame(&mail, 0, "greeting", 5, &data), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), "message greeting: frame 0 has 4 bytes; expected 5");
    lk_error_clear();
    assert_int_equal(lk__wire_frame(&mail, 1, "greeting", 0, &data), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), "message greeting: frame 1 is missing");
    lk_error_clear();
}

static void foreign_texts_speak_to_no_terminal(void **state)
{
    (void)state;
    char text[8];
    lk_mail mail = message();
    mail.frames[1] = (lk_frame){"a\033[2Jbcdefgh", 12};
    lk__wire_text(&mail, 0, text, sizeof text);
    assert_string_equal(text, "a?[2Jbc");
    lk__wire_text(&mail, 5, text, sizeof text);
    assert_string_equal(text, "");
    char whole[] = {'a', '\033', 'b', '\n', 'c', 'd'}; /* a text in a structure may lack its terminator */
    lk__wire_tame(whole, sizeof whole);
    assert_string_equal(whole, "a?b?c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sent_is_read),
        cmocka_unit_test(damaged_ones_are_named),
        cmocka_unit_test(frames_of_another_size_are_named),
        cmocka_unit_test(foreign_texts_speak_to_no_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
