#include "dist/service/cluster.h"

#include "base/mem.h"
#include "base/quote.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lk_cluster {
    char *source;
    int counts[LK_ROLE_COUNT], n;
    lk_cluster_address *addresses[LK_ROLE_COUNT]; /* parts of `all`, in the order of the roles */
    lk_cluster_address *all;
    bool has_task;
    lk_cluster_task task;
};

static const char *const role_names[] = {"chief", "worker", "ps"};
static const char variable[] = "TF_CONFIG"; /* of the environment */

/* --- texts for messages ------------------------------------------------------------------------------------------- */

static const char *cluster_json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

static lk_status cluster_find_role(const char *source, const char *where, const char *name, lk_cluster_role *role)
{
    char quoted[LK_QUOTED];
    if (strcmp(name, "evaluator") == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: there is no evaluator: every worker takes part in the evaluation; leave it out",
                source, where);
    if (strcmp(name, "master") == 0)
        name = role_names[LK_ROLE_CHIEF];
    for (int r = 0; r < LK_ROLE_COUNT; r++) {
        *role = (lk_cluster_role)r;
        if (strcmp(name, role_names[r]) == 0)
            return LK_OK;
    }
    LK_FAIL(LK_ERR_FORMAT, "%s: %s: unknown role '%s': must be chief, worker or ps", source, where,
            lk__quote(name, quoted));
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static bool cluster_is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
}

static bool cluster_parse_port(const char *text, int *port)
{
    *port = 0;
    if (!*text || strlen(text) > 5)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        *port = *port * 10 + (*text - '0');
    }
    return *port <= 65535;
}

static bool cluster_parse_host(const char *text, size_t length, lk_cluster_address *address)
{
    struct in6_addr ipv6;
    bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
    if (bracketed) {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof address->host)
        return false;
    memcpy(address->host, text, length);
    address->host[length] = '\0';
    if (bracketed)
        return inet_pton(AF_INET6, address->host, &ipv6) == 1;
    for (size_t i = 0; i < length; i++)
        if (!cluster_is_name_character(text[i]))
            return false;
    return true;
}

bool lk__cluster_read_address(const char *text, lk_cluster_address *address)
{
    const char *colon = strrchr(text, ':');
    return colon && cluster_parse_host(text, (size_t)(colon - text), address) &&
           cluster_parse_port(colon + 1, &address->port);
}

lk_status lk__cluster_parse_address(const char *what, const char *text, lk_cluster_address *address)
{
    if (!lk__cluster_read_address(text, address))
        LK_FAIL(LK_ERR_ARGUMENT, "%s %s: must be host:port or [ipv6]:port, with a port from 0 to 65535", what, text);
    return LK_OK;
}

static lk_status cluster_read_address(const char *source, const char *role, size_t index, const json_t *value,
                                      lk_cluster_address *address)
{
    char quoted[LK_QUOTED];
    const char *text = json_string_value(value);
    if (!text)
        LK_FAIL(LK_ERR_FORMAT, "%s: cluster.%s[%zu]: is %s; must be an address in quotes, \"host:port\"", source, role,
                index, cluster_json_kind(value));
    if (!lk__cluster_read_address(text, address))
        LK_FAIL(
            LK_ERR_FORMAT,
            "%s: cluster.%s[%zu]: '%s' is no address; must be host:port or [ipv6]:port, with a port from 0 to 65535",
            source, role, index, lk__quote(text, quoted));
    return LK_OK;
}

static int cluster_compare_addresses(const void *a, const void *b)
{
    const lk_cluster_address *left = a, *right = b;
    int order = strcmp(left->host, right->host);
    return order ? order : (left->port > right->port) - (left->port < right->port);
}

/* Two processes cannot listen at the same address. Port 0 is a different port for each. */
static lk_status cluster_check_repeated(const lk_cluster *cluster)
{
    lk_cluster_address *sorted = lk__calloc((size_t)cluster->n, sizeof *sorted), *twice = NULL;
    if (!sorted)
        return LK_ERR_MEMORY;
    memcpy(sorted, cluster->all, (size_t)cluster->n * sizeof *sorted);
    qsort(sorted, (size_t)cluster->n, sizeof *sorted, cluster_compare_addresses);
    for (int i = 1; i < cluster->n && !twice; i++)
        if (sorted[i].port != 0 && cluster_compare_addresses(&sorted[i - 1], &sorted[i]) == 0)
            twice = &sorted[i];
    if (twice)
        lk__fail(LK_ERR_FORMAT, "%s: cluster: %s port %d is given twice; each process has an address of its own",
                 cluster->source, twice->host, twice->port);
    lk__free(sorted);
    return twice ? LK_ERR_FORMAT : LK_OK;
}

/* --- the cluster -------------------------------------------------------------------------------------------------- */

/* Sets lists[role] to the addresses of each role, borrowed; NULL: the object has none. */
static lk_status cluster_sort_roles(const char *source, json_t *object, json_t **lists)
{
    const char *name;
    json_t *list;
    if (!json_is_object(object))
        LK_FAIL(LK_ERR_FORMAT, "%s: cluster: is %s; must be an object, {\"worker\": [\"host:port\", ...]}", source,
                cluster_json_kind(object));
    json_object_foreach(object, name, list)
    {
        lk_cluster_role role;
        LK_TRY(cluster_find_role(source, "cluster", name, &role));
        if (!json_is_array(list))
            LK_FAIL(LK_ERR_FORMAT, "%s: cluster.%s: is %s; must be a list of addresses, [\"host:port\", ...]", source,
                    role_names[role], cluster_json_kind(list));
        if (lists[role])
            LK_FAIL(LK_ERR_FORMAT, "%s: cluster: has a chief and a master, which are one role; leave one of them out",
                    source);
        lists[role] = list;
    }
    return LK_OK;
}

static lk_status cluster_check_counts(const char *source, json_t *const *lists)
{
    size_t chiefs = json_array_size(lists[LK_ROLE_CHIEF]), workers = json_array_size(lists[LK_ROLE_WORKER]);
    size_t all = chiefs + workers + json_array_size(lists[LK_ROLE_PS]);
    if (chiefs > 1)
        LK_FAIL(LK_ERR_FORMAT, "%s: cluster.chief: %zu addresses; there is one chief at most", source, chiefs);
    if (chiefs + workers == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: cluster: has no worker and no chief; somebody has to train", source);
    if (all > LK_CLUSTER_TASKS)
        LK_FAIL(LK_ERR_FORMAT, "%s: cluster: %zu addresses; %d are possible", source, all, LK_CLUSTER_TASKS);
    return LK_OK;
}

static lk_status cluster_fill(lk_cluster *cluster, json_t *object)
{
    json_t *lists[LK_ROLE_COUNT] = {NULL};
    LK_TRY(cluster_sort_roles(cluster->source, object, lists));
    LK_TRY(cluster_check_counts(cluster->source, lists));
    for (int r = 0; r < LK_ROLE_COUNT; r++)
        cluster->n += cluster->counts[r] = (int)json_array_size(lists[r]);
    cluster->all = lk__calloc((size_t)cluster->n, sizeof *cluster->all);
    if (!cluster->all)
        return LK_ERR_MEMORY;
    lk_cluster_address *next = cluster->all;
    for (int r = 0; r < LK_ROLE_COUNT; r++) {
        cluster->addresses[r] = next;
        for (size_t i = 0; i < json_array_size(lists[r]); i++)
            LK_TRY(cluster_read_address(cluster->source, role_names[r], i, json_array_get(lists[r], i), next++));
    }
    return cluster_check_repeated(cluster);
}

/* --- the task ----------------------------------------------------------------------------------------------------- */

lk_status lk__cluster_set_task(lk_cluster *cluster, const char *where, const char *type, long long index)
{
    lk_cluster_role role;
    LK_TRY(cluster_find_role(cluster->source, where, type, &role));
    int count = cluster->counts[role];
    if (count == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: the cluster has no %s", cluster->source, where, role_names[role]);
    if (index < 0 || index >= count)
        LK_FAIL(LK_ERR_FORMAT, "%s: %s: there is no %s %lld; must be from 0 to %d", cluster->source, where,
                role_names[role], index, count - 1);
    cluster->task = (lk_cluster_task){role, (int)index};
    cluster->has_task = true;
    return LK_OK;
}

/* TensorFlow also accepts an index in quotes. */
static bool cluster_read_index(const json_t *value, long long *index)
{
    const char *text = json_string_value(value);
    char *end;
    *index = json_integer_value(value);
    if (!text)
        return json_is_integer(value);
    errno = 0;
    *index = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static lk_status cluster_read_task(lk_cluster *cluster, const char *source, const json_t *task)
{
    long long index;
    if (!task)
        return LK_OK;
    if (!json_is_object(task))
        LK_FAIL(LK_ERR_FORMAT, "%s: task: is %s; must be an object, {\"type\": \"worker\", \"index\": 0}", source,
                cluster_json_kind(task));
    const json_t *type = json_object_get(task, "type"), *number = json_object_get(task, "index");
    if (!type && !number)
        return LK_OK;
    if (!json_is_string(type))
        LK_FAIL(LK_ERR_FORMAT, "%s: task.type: is %s; must be \"chief\", \"worker\" or \"ps\"", source,
                type ? cluster_json_kind(type) : "not there");
    if (!number || !cluster_read_index(number, &index))
        LK_FAIL(LK_ERR_FORMAT, "%s: task.index: is %s; must be a whole number from 0", source,
                number ? json_is_string(number) ? "a string that is no whole number" : cluster_json_kind(number)
                       : "not there");
    return lk__cluster_set_task(cluster, cluster->source == source ? "task" : "task of TF_CONFIG",
                                json_string_value(type), index);
}

/* --- a description ------------------------------------------------------------------------------------------------ */

/* Parses the JSON. The caller releases *root with json_decref. */
static lk_status cluster_decode(const char *text, size_t bytes, const char *source, json_t **root)
{
    char quoted[LK_QUOTED];
    json_error_t error;
    if (bytes > LK_CLUSTER_BYTES)
        LK_FAIL(LK_ERR_FORMAT, "%s: more than %d bytes are no description of a cluster", source, LK_CLUSTER_BYTES);
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*root && json_error_code(&error) == json_error_out_of_memory)
        LK_FAIL(LK_ERR_MEMORY, "%s: no memory to read it", source);
    if (!*root)
        LK_FAIL(LK_ERR_FORMAT, "%s: line %d, column %d: %s; must be JSON, {\"cluster\": ..., \"task\": ...}", source,
                error.line, error.column, lk__quote(error.text, quoted));
    return LK_OK;
}

static lk_status cluster_build(json_t *root, const char *source, lk_cluster **cluster)
{
    if (!json_is_object(root))
        LK_FAIL(LK_ERR_FORMAT, "%s: is %s; must be an object, {\"cluster\": ..., \"task\": ...}", source,
                cluster_json_kind(root));
    if (!json_object_get(root, "cluster") && json_object_get(root, "sparseCluster"))
        LK_FAIL(LK_ERR_FORMAT,
                "%s: has sparseCluster, which leaves addresses out; must have cluster, with all of them "
                "(Kubeflow: enableDynamicWorker: false)",
                source);
    json_t *object = json_object_get(root, "cluster");
    if (!object)
        return LK_OK;
    *cluster = lk__calloc(1, sizeof **cluster);
    if (!*cluster)
        return LK_ERR_MEMORY;
    (*cluster)->source = lk__strdup(source);
    if (!(*cluster)->source)
        return LK_ERR_MEMORY;
    LK_TRY(cluster_fill(*cluster, object));
    return cluster_read_task(*cluster, (*cluster)->source, json_object_get(root, "task"));
}

lk_status lk__cluster_parse(const char *text, size_t bytes, const char *source, lk_cluster **cluster)
{
    json_t *root;
    *cluster = NULL;
    LK_TRY(cluster_decode(text, bytes, source, &root));
    lk_status status = cluster_build(root, source, cluster);
    json_decref(root);
    if (status != LK_OK) {
        lk__cluster_release(*cluster);
        *cluster = NULL;
    }
    return status;
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

static lk_status cluster_read_file(const char *path, char **text, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: %s", path, strerror(errno));
    *text = lk__calloc(LK_CLUSTER_BYTES + 1, 1);
    *bytes = *text ? fread(*text, 1, LK_CLUSTER_BYTES + 1, file) : 0;
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error) {
        lk__free(*text);
        LK_FAIL(LK_ERR_IO, "%s: %s", path, strerror(error));
    }
    return *text ? LK_OK : LK_ERR_MEMORY;
}

static lk_status cluster_open_file(const char *path, lk_cluster **cluster)
{
    char *text;
    size_t bytes;
    LK_TRY(cluster_read_file(path, &text, &bytes));
    lk_status status = lk__cluster_parse(text, bytes, path, cluster);
    lk__free(text);
    if (status == LK_OK && !*cluster)
        LK_FAIL(LK_ERR_FORMAT, "%s: has no cluster; must be {\"cluster\": {\"worker\": [\"host:port\", ...]}}", path);
    return status;
}

/* Takes only the task from TF_CONFIG. */
static lk_status cluster_take_task(lk_cluster *cluster, const char *text)
{
    json_t *root;
    LK_TRY(cluster_decode(text, strlen(text), variable, &root));
    lk_status status =
        json_is_object(root) ? cluster_read_task(cluster, variable, json_object_get(root, "task")) : LK_OK;
    json_decref(root);
    return status;
}

lk_status lk__cluster_open(const char *file, lk_cluster **cluster)
{
    const char *text = getenv(variable);
    bool is_set = text && *text;
    *cluster = NULL;
    if (!file)
        return is_set ? lk__cluster_parse(text, strlen(text), variable, cluster) : LK_OK;
    LK_TRY(cluster_open_file(file, cluster));
    lk_status status = is_set && !(*cluster)->has_task ? cluster_take_task(*cluster, text) : LK_OK;
    if (status != LK_OK) {
        lk__cluster_release(*cluster);
        *cluster = NULL;
    }
    return status;
}

void lk__cluster_release(lk_cluster *cluster)
{
    if (!cluster)
        return;
    lk__free(cluster->all);
    lk__free(cluster->source);
    lk__free(cluster);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

const char *lk__cluster_source(const lk_cluster *cluster)
{
    return cluster->source;
}

int lk__cluster_count(const lk_cluster *cluster, lk_cluster_role role)
{
    return cluster->counts[role];
}

const lk_cluster_address *lk__cluster_address(const lk_cluster *cluster, lk_cluster_role role, int index)
{
    return index >= 0 && index < cluster->counts[role] ? &cluster->addresses[role][index] : NULL;
}

const lk_cluster_task *lk__cluster_task(const lk_cluster *cluster)
{
    return cluster->has_task ? &cluster->task : NULL;
}

lk_status lk__cluster_check_processes(const lk_cluster *cluster, int processes)
{
    int wanted = cluster->counts[LK_ROLE_CHIEF] + cluster->counts[LK_ROLE_WORKER];
    if (wanted != processes)
        LK_FAIL(LK_ERR_ARGUMENT,
                "%s: chief and workers are %d, but %d process%s started; start %d (lockstep launch -n %d)",
                cluster->source, wanted, processes, processes == 1 ? " was" : "es were", wanted, wanted);
    return LK_OK;
}
