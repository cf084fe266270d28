/* The socket on which a server of pages waits for connections. */
#pragma once

#include "dist/service/address.h"

/* Gives a socket that listens at the address, without blocking; sets the port of *address if it is 0. Close it with
 * close(). Errors: LK_ERR_IO (the port is in use, or the host is not of this machine). */
lk_status lk__live_listen(lk_address *address, int *fd);
