#include "dist/service/wire.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

lk_status lk__wire_header(const lk_mail *mail, lk_wire_header *header)
{
    if (mail->n < 1 || mail->frames[0].bytes < sizeof *header)
        LK_FAIL(LK_ERR_FORMAT, "message: %zu bytes are no header; it has %zu", mail->n ? mail->frames[0].bytes : 0,
                sizeof *header);
    memcpy(header, mail->frames[0].data, sizeof *header);
    if (header->magic == __builtin_bswap32(LK_WIRE_MAGIC))
        LK_FAIL(LK_ERR_FORMAT, "message: from a machine with the other byte order");
    if (header->magic != LK_WIRE_MAGIC)
        LK_FAIL(LK_ERR_FORMAT, "message: begins with %08x, not %08x: another program's", header->magic, LK_WIRE_MAGIC);
    if (header->version != LK_WIRE_VERSION)
        LK_FAIL(LK_ERR_FORMAT, "message: of version %d, and this process speaks %d: install the same version of both",
                header->version, LK_WIRE_VERSION);
    return LK_OK;
}

lk_status lk__wire_body(const lk_mail *mail, int kind, const char *what, void *body, size_t bytes, int least, int most)
{
    lk_wire_header header;
    LK_TRY(lk__wire_header(mail, &header));
    if (header.kind != kind)
        LK_FAIL(LK_ERR_FORMAT, "message %s: is of kind %d; expected %d", what, header.kind, kind);
    if (mail->frames[0].bytes != sizeof header + bytes)
        LK_FAIL(LK_ERR_FORMAT, "message %s: has %zu bytes; expected %zu", what, mail->frames[0].bytes,
                sizeof header + bytes);
    if (mail->n - 1 < least || mail->n - 1 > most)
        LK_FAIL(LK_ERR_FORMAT, "message %s: %d frames follow; expected %d to %d", what, mail->n - 1, least, most);
    memcpy(body, (const char *)mail->frames[0].data + sizeof header, bytes);
    return LK_OK;
}

lk_status lk__wire_frame(const lk_mail *mail, int i, const char *what, size_t bytes, const void **data)
{
    if (i + 1 >= mail->n)
        LK_FAIL(LK_ERR_FORMAT, "message %s: frame %d is missing", what, i);
    if (mail->frames[i + 1].bytes != bytes)
        LK_FAIL(LK_ERR_FORMAT, "message %s: frame %d has %zu bytes; expected %zu", what, i, mail->frames[i + 1].bytes,
                bytes);
    *data = mail->frames[i + 1].data;
    return LK_OK;
}

void lk__wire_text(const lk_mail *mail, int i, char *text, size_t size)
{
    lk_frame frame = i + 1 < mail->n ? mail->frames[i + 1] : (lk_frame){NULL, 0};
    size_t n = frame.bytes < size - 1 ? frame.bytes : size - 1;
    if (n > 0)
        memcpy(text, frame.data, n);
    text[n] = '\0';
    lk__wire_tame(text, n + 1);
}

void lk__wire_tame(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

lk_frame lk__wire_first(lk_wire_first *first, int kind, uint64_t number, const void *body, size_t bytes)
{
    first->header = (lk_wire_header){LK_WIRE_MAGIC, LK_WIRE_VERSION, (uint16_t)kind, number};
    memcpy(first->body, body, bytes < LK_WIRE_BODY ? bytes : LK_WIRE_BODY);
    first->bytes = sizeof first->header + bytes;
    return (lk_frame){first, first->bytes};
}

uint64_t lk__wire_nonce(void)
{
    uint64_t nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        nonce = (uint64_t)getpid() << 32 ^ (uint64_t)lk__nanoseconds();
    return nonce | 1;
}
