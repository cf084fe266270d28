/* Identifies this process of a parameter-server training, and finds the chief: from the options, which take precedence,
 * and from the description of the cluster. */
#pragma once

#include "dist/service/requests.h"
#include "lockstep/parameter_server.h"

typedef struct lk_ps_identity {
    lk_train_role role;
    int index, servers;
    double timeout, join_timeout; /* seconds */
    lk_address chief;             /* where the chief listens */
    lk_address own;               /* where this server listens */
    char chief_text[LK_ADDRESS_TEXT], own_text[LK_ADDRESS_TEXT];
    bool has_keys;
    lk_keys keys;
    const char *chief_key; /* NULL: no keys are used */
} lk_ps_identity;

/* Returns whether the configuration asks for this strategy. */
bool lk__ps_is_asked_for(const lk_train_config *config);

/* Finds the identity and resolves host names. Errors: LK_ERR_ARGUMENT, those of lk__cluster_open, lk__address_resolve,
 * lk__keys_read. */
lk_status lk__ps_identity_find(const lk_train_config *config, lk_ps_identity *identity);
void lk__ps_identity_free(lk_ps_identity *identity);

/* Opens the post, unless the process may open too few files for this role and one worker. Errors: LK_ERR_IO, those of
 * lk__post_open. */
lk_status lk__ps_open_post(const lk_ps_identity *identity, lk_post **post);
