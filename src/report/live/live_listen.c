#include "report/live/live_listen.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static lk_status listen_fail(const lk_address *address, int error)
{
    char text[LK_ADDRESS_TEXT];
    lk__address_print(address, text);
    if (error == EADDRINUSE)
        LK_FAIL(LK_ERR_IO, "%s: the port is in use: choose another by --port, or any free one by --port 0", text);
    if (error == EADDRNOTAVAIL)
        LK_FAIL(LK_ERR_IO, "%s: this machine does not have the address that --host names", text);
    LK_FAIL(LK_ERR_IO, "%s: cannot be listened on: %s", text, strerror(error));
}

/* Returns 0 or an errno. */
static int listen_bind(int fd, lk_address *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)address->port)};
    struct sockaddr *own = address->is_ipv6 ? (struct sockaddr *)(void *)&v6 : (struct sockaddr *)(void *)&v4;
    socklen_t size = address->is_ipv6 ? sizeof v6 : sizeof v4;
    void *number = address->is_ipv6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr;
    int yes = 1;
    if (inet_pton(own->sa_family, address->numeric, number) != 1)
        return EADDRNOTAVAIL;
    /* A server that has just ended leaves connections that would keep the port for a minute. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 || bind(fd, own, size) != 0 ||
        listen(fd, 64) != 0 || getsockname(fd, own, &size) != 0)
        return errno;
    address->port = ntohs(address->is_ipv6 ? v6.sin6_port : v4.sin_port);
    return 0;
}

lk_status lk__live_listen(lk_address *address, int *fd)
{
    *fd = socket(address->is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = *fd < 0 ? errno : listen_bind(*fd, address);
    if (!error)
        return LK_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return listen_fail(address, error);
}
