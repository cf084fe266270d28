/* Links between devices whose memory is the process's own. */
#ifndef LK_DIST_HOST_LINKS_H
#define LK_DIST_HOST_LINKS_H

#include "core/links.h"

extern const lk_links_table lk__host_links;

#endif
