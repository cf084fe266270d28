/* Links between devices whose memory is the process's own. */
#pragma once

#include "core/links.h"

extern const lk_links_table lk__host_links;
