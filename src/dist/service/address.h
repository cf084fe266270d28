/* A resolved network address, "host:port". */
#pragma once

#include "dist/service/cluster.h"

enum { LK_ADDRESS_HOST = 64, LK_ADDRESS_TEXT = LK_ADDRESS_HOST + 16 };

typedef struct lk_address {
    char numeric[LK_ADDRESS_HOST]; /* the host: "127.0.0.1", "::1" */
    int port;                      /* 0: any free port */
    bool is_loopback, is_ipv6;
    bool is_unspecified; /* 0.0.0.0 or ::, all addresses of this machine */
} lk_address;

/* Resolves a host name. what: the name of the setting in messages, as "--coordinator". Errors: LK_ERR_NOT_FOUND (it
 * does not resolve, and why). */
lk_status lk__address_resolve(const char *what, const lk_cluster_address *named, lk_address *address);

/* Writes the address as text: "127.0.0.1:5000", "[::1]:5000". */
void lk__address_print(const lk_address *address, char text[LK_ADDRESS_TEXT]);
