#include "dist/service/address.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static bool address_is_unspecified(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

lk_status lk__address_resolve(const char *what, const lk_cluster_address *named, lk_address *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(named->host, NULL, &hints, &found);
    if (error)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: host '%s' does not resolve: %s", what, named->host,
                error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    *address = (lk_address){.port = named->port,
                            .is_loopback = address_is_loopback(found->ai_addr),
                            .is_ipv6 = found->ai_family == AF_INET6,
                            .is_unspecified = address_is_unspecified(found->ai_addr)};
    error = getnameinfo(found->ai_addr, found->ai_addrlen, address->numeric, sizeof address->numeric, NULL, 0,
                        NI_NUMERICHOST);
    freeaddrinfo(found);
    if (error)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: the address of host '%s' cannot be written down: %s", what, named->host,
                gai_strerror(error));
    return LK_OK;
}

void lk__address_print(const lk_address *address, char text[LK_ADDRESS_TEXT])
{
    snprintf(text, LK_ADDRESS_TEXT, address->is_ipv6 ? "[%s]:%d" : "%s:%d", address->numeric, address->port);
}
