/* Which process of a parameter-server training this is, and where the chief is: from the description of the cluster,
 * and from the options, which come before it. */
#ifndef LK_TRAIN_PS_PLACE_H
#define LK_TRAIN_PS_PLACE_H

#include "dist/requests.h"
#include "lockstep/parameter_server.h"

typedef struct ps_place {
    lk_train_role role;
    int index, servers;
    double timeout, join_timeout; /* seconds */
    lk_address chief;             /* for the chief itself: where it listens */
    lk_address own;               /* of a server: where it listens */
    char chief_text[LK_ADDRESS_TEXT + 16], own_text[LK_ADDRESS_TEXT + 16];
    bool has_keys;
    lk_keys keys;
    const char *chief_key; /* NULL: without keys */
} ps_place;

/* Whether the configuration is of this strategy. */
bool lk__ps_is_asked_for(const lk_train_config *config);

/* Finds it, resolving names. Errors: LK_ERR_ARGUMENT, those of lk__cluster_open, lk__address_resolve, lk__keys_read. */
lk_status lk__ps_place_find(const lk_train_config *config, ps_place *place);
void lk__ps_place_free(ps_place *place);

#endif
