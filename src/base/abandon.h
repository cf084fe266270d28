/* Memory that stays for the rest of the process, because others may still write to it: messages in flight after a
 * failure. */
#pragma once

/* A member of what is abandoned. */
typedef struct lk_abandoned {
    struct lk_abandoned *next;
} lk_abandoned;

/* Keeps the memory in a list, where checkers of leaks find it. Any thread. */
void lk__abandon(lk_abandoned *memory);
