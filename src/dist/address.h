/* Where a process listens: "host:port". */
#ifndef LK_DIST_ADDRESS_H
#define LK_DIST_ADDRESS_H

#include "dist/cluster.h"

enum { LK_ADDRESS_TEXT = 64 };

typedef struct lk_address {
    char numeric[LK_ADDRESS_TEXT]; /* of the host: "127.0.0.1", "::1" */
    int port;                      /* 0: whichever is free */
    bool is_loopback, is_ipv6;
    bool is_unspecified; /* 0.0.0.0 or ::, all addresses of this machine */
} lk_address;

/* Finds the host's address. what: what messages call it, as "--coordinator". Errors: LK_ERR_NOT_FOUND (it does not
 * resolve, and why). */
lk_status lk__address_resolve(const char *what, const lk_cluster_address *place, lk_address *address);

/* "127.0.0.1:5000", "[::1]:5000" */
void lk__address_print(const lk_address *address, char text[LK_ADDRESS_TEXT + 16]);

#endif
