#include "pjrt/pjrt_modules.h"
#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

enum { BUCKETS = 1024 };

typedef struct compiled {
    struct compiled *next;
    lk_pjrt_module *module;
    uint64_t hash;
    size_t size;
    char text[];
} compiled;

/* Never freed: modules live as long as the session, which is that of the process. */
struct lk_pjrt_modules {
    const lk_pjrt_session *session;
    pthread_mutex_t lock;
    compiled *buckets[BUCKETS];
};

lk_status lk__pjrt_modules_new(const lk_pjrt_session *session, lk_pjrt_modules **modules)
{
    *modules = lk__calloc(1, sizeof **modules);
    if (!*modules)
        return LK_ERR_MEMORY;
    (*modules)->session = session;
    pthread_mutex_init(&(*modules)->lock, NULL);
    return LK_OK;
}

/* Under the lock. */
static lk_status pjrt_modules_compile(lk_pjrt_modules *modules, const char *text, size_t size, uint64_t hash,
                                      lk_pjrt_module **module)
{
    compiled *c = lk__calloc(1, sizeof *c + size);
    double began = lk__seconds();
    if (!c)
        return LK_ERR_MEMORY;
    lk_activity before = lk__activity_begin(LK_ACTIVITY_OPERATOR, "compile"); /* it may take longer than a stall */
    lk_status status = lk__pjrt_module_compile(modules->session, text, size, &c->module);
    lk__activity_end(before);
    if (status != LK_OK) {
        lk__free(c);
        return status;
    }
    lk__log(LK_LOG_DEBUG, "pjrt: compiled a module of %zu bytes in %.2f s", size, lk__seconds() - began);
    c->hash = hash;
    c->size = size;
    memcpy(c->text, text, size);
    c->next = modules->buckets[hash % BUCKETS];
    modules->buckets[hash % BUCKETS] = c;
    *module = c->module;
    return LK_OK;
}

lk_status lk__pjrt_modules_get(lk_pjrt_modules *modules, const char *text, size_t size, lk_pjrt_module **module)
{
    uint64_t hash = XXH3_64bits(text, size);
    lk_status status = LK_OK;
    *module = NULL;
    pthread_mutex_lock(&modules->lock);
    for (const compiled *c = modules->buckets[hash % BUCKETS]; c && !*module; c = c->next)
        if (c->hash == hash && c->size == size && memcmp(c->text, text, size) == 0)
            *module = c->module;
    if (!*module)
        status = pjrt_modules_compile(modules, text, size, hash, module);
    pthread_mutex_unlock(&modules->lock);
    return status;
}
