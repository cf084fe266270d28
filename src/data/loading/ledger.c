/* Counts how often an epoch used each sample. */
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/data.h"

#include <inttypes.h>
#include <string.h>

struct lk_ledger {
    int64_t count;
    uint8_t *uses; /* [count], saturating */
};

lk_status lk_ledger_new(int64_t count, lk_ledger **ledger)
{
    *ledger = NULL;
    if (count < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "a ledger of %" PRId64 " samples: expected 0 or more", count);
    lk_ledger *l = lk__calloc(1, sizeof *l);
    if (!l)
        return LK_ERR_MEMORY;
    l->count = count;
    l->uses = lk__calloc((size_t)count, sizeof *l->uses);
    if (!l->uses) {
        lk__free(l);
        return LK_ERR_MEMORY;
    }
    *ledger = l;
    return LK_OK;
}

void lk_ledger_release(lk_ledger *ledger)
{
    if (!ledger)
        return;
    lk__free(ledger->uses);
    lk__free(ledger);
}

void lk_ledger_reset(lk_ledger *ledger)
{
    memset(ledger->uses, 0, (size_t)ledger->count);
}

lk_status lk_ledger_add(lk_ledger *ledger, const int64_t *indices, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= ledger->count)
            LK_FAIL(LK_ERR_ARGUMENT, "sample %" PRId64 " is not in a ledger of %" PRId64 " samples", indices[i],
                    ledger->count);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *uses = &ledger->uses[indices[i]];
        *uses += *uses < UINT8_MAX;
    }
    return LK_OK;
}

const uint8_t *lk_ledger_uses(const lk_ledger *ledger, int64_t *count)
{
    *count = ledger->count;
    return ledger->uses;
}

void lk_ledger_add_uses(lk_ledger *ledger, const uint8_t *uses)
{
    for (int64_t i = 0; i < ledger->count; i++) {
        int sum = ledger->uses[i] + uses[i];
        ledger->uses[i] = (uint8_t)(sum < UINT8_MAX ? sum : UINT8_MAX);
    }
}

void lk_ledger_check(const lk_ledger *ledger, lk_ledger_report *report)
{
    *report = (lk_ledger_report){.first_bad = -1};
    for (int64_t i = 0; i < ledger->count; i++) {
        report->unused += ledger->uses[i] == 0;
        report->used_once += ledger->uses[i] == 1;
        report->repeated += ledger->uses[i] > 1;
        if (ledger->uses[i] != 1 && report->first_bad < 0)
            report->first_bad = i;
    }
}
