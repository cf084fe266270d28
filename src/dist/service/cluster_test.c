/* Descriptions of clusters, as TensorFlow and Kubeflow write them, and invalid ones. */
#include "base/folder_testing.h"
#include "base/mem_testing.h"
#include "dist/service/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lk_cluster *parse(const char *text)
{
    lk_cluster *cluster;
    lk_error_clear();
    if (lk__cluster_parse(text, strlen(text), "TF_CONFIG", &cluster) != LK_OK)
        fail_msg("%s: %s", text, lk_error_message());
    return cluster;
}

static void assert_address(const lk_cluster *cluster, lk_cluster_role role, int index, const char *host, int port)
{
    const lk_cluster_address *address = lk__cluster_address(cluster, role, index);
    assert_non_null(address);
    assert_string_equal(address->host, host);
    assert_int_equal(address->port, port);
}

static void what_tensorflow_writes_is_read(void **state)
{
    (void)state;
    lk_cluster *cluster = parse("{\"cluster\": {\"chief\": [\"host1:2222\"], \"worker\": [\"host2:2222\", "
                                "\"[fe80::1]:3\"], \"ps\": [\"10.0.0.7:0\", \"10.0.0.7:0\"]}, "
                                "\"task\": {\"type\": \"worker\", \"index\": 1}}");
    assert_int_equal(lk__cluster_count(cluster, LK_ROLE_CHIEF), 1);
    assert_int_equal(lk__cluster_count(cluster, LK_ROLE_WORKER), 2);
    assert_int_equal(lk__cluster_count(cluster, LK_ROLE_PS), 2);
    assert_address(cluster, LK_ROLE_CHIEF, 0, "host1", 2222);
    assert_address(cluster, LK_ROLE_WORKER, 0, "host2", 2222);
    assert_address(cluster, LK_ROLE_WORKER, 1, "fe80::1", 3);
    assert_address(cluster, LK_ROLE_PS, 1, "10.0.0.7", 0);
    assert_null(lk__cluster_address(cluster, LK_ROLE_PS, 2));
    assert_null(lk__cluster_address(cluster, LK_ROLE_PS, -1));
    assert_int_equal(lk__cluster_task(cluster)->role, LK_ROLE_WORKER);
    assert_int_equal(lk__cluster_task(cluster)->index, 1);
    assert_string_equal(lk__cluster_source(cluster), "TF_CONFIG");
    lk__cluster_release(cluster);
}

/* As written by the training operator: names of services, an index in quotes (older versions), and its own keys. */
static void what_kubeflow_writes_is_read(void **state)
{
    (void)state;
    lk_cluster *cluster = parse("{\"cluster\":{\"master\":[\"job-master-0.team.svc:2222\"],"
                                "\"worker\":[\"job-worker-0.team.svc:2222\"]},"
                                "\"task\":{\"type\":\"master\",\"index\":\"0\",\"trial\":\"1\"},"
                                "\"environment\":\"cloud\",\"rpc_layer\":\"grpc\"}");
    assert_address(cluster, LK_ROLE_CHIEF, 0, "job-master-0.team.svc", 2222);
    assert_int_equal(lk__cluster_task(cluster)->role, LK_ROLE_CHIEF);
    lk__cluster_release(cluster);
    assert_null(parse("{}")); /* one process for TensorFlow */
    assert_null(parse("{\"task\": {\"type\": \"worker\", \"index\": 0}}"));
}

#define WORKERS "\"worker\": [\"a:1\", \"b:2\"]"
#define CLUSTER "\"cluster\": {" WORKERS "}"

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 0: "},
        {"{\"cluster\": {", "line 1, column 13: "},
        {"[1]", "is a list; must be an object"},
        {"{\"cluster\": []}", "cluster: is a list; must be an object"},
        {"{\"cluster\": {}}", "cluster: has no worker and no chief"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}}", "cluster: has no worker and no chief"},
        {"{\"cluster\": {\"worker\": \"a:1\"}}", "cluster.worker: is a string; must be a list of addresses"},
        {"{\"cluster\": {\"worker\": {\"0\": \"a:1\"}}}", "cluster.worker: is an object; must be a list"},
        {"{\"cluster\": {\"worker\": [1]}}", "cluster.worker[0]: is a number; must be an address in quotes"},
        {"{\"cluster\": {\"worker\": [\"a:1\", null]}}", "cluster.worker[1]: is null"},
        {"{\"cluster\": {\"worker\": [\"a\"]}}", "cluster.worker[0]: 'a' is no address; must be host:port"},
        {"{\"cluster\": {\"worker\": [\":1\"]}}", "cluster.worker[0]: ':1' is no address"},
        {"{\"cluster\": {\"worker\": [\"a:\"]}}", "'a:' is no address"},
        {"{\"cluster\": {\"worker\": [\"a:65536\"]}}", "'a:65536' is no address"},
        {"{\"cluster\": {\"worker\": [\"a:000001\"]}}", "'a:000001' is no address"},
        {"{\"cluster\": {\"worker\": [\"a:-1\"]}}", "'a:-1' is no address"},
        {"{\"cluster\": {\"worker\": [\"::1:2222\"]}}", "'::1:2222' is no address; must be host:port or [ipv6]:port"},
        {"{\"cluster\": {\"worker\": [\"[::1:2222\"]}}", "'[::1:2222' is no address"},
        {"{\"cluster\": {\"worker\": [\"[]:2222\"]}}", "'[]:2222' is no address"},
        {"{\"cluster\": {\"worker\": [\"[host]:2222\"]}}", "'[host]:2222' is no address"},
        {"{\"cluster\": {\"worker\": [\"grpc://a:1\"]}}", "'grpc://a:1' is no address"},
        {"{\"cluster\": {\"worker\": [\"a b:1\"]}}", "'a b:1' is no address"},
        {"{\"cluster\": {\"worker\": [\"\\u001b[2Ja:1\"]}}", "'?[2Ja:1' is no address"},
        {"{\"cluster\": {\"worker\": [\"a\\u0000:1\"]}}", "line 1, column "},
        {"{\"cluster\": {\"worker\": [\"a:1\", \"a:1\"]}}", "cluster: a port 1 is given twice"},
        {"{\"cluster\": {\"worker\": [\"a:1\"], \"ps\": [\"a:1\"]}}", "cluster: a port 1 is given twice"},
        {"{\"cluster\": {\"worker\": [\"a:1\"], \"worker\": [\"b:1\"]}}", "duplicate object key"},
        {"{\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}}", "has a chief and a master"},
        {"{\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}}", "cluster.chief: 2 addresses; there is one chief at most"},
        {"{\"cluster\": {" WORKERS ", \"evaluator\": [\"e:1\"]}}", "cluster: there is no evaluator"},
        {"{\"cluster\": {" WORKERS ", \"server\": [\"e:1\"]}}", "unknown role 'server': must be chief, worker or ps"},
        {"{\"sparseCluster\": {\"worker\": {\"0\": \"a:1\"}}}", "has sparseCluster, which leaves addresses out"},
        {"{" CLUSTER ", \"task\": 1}", "task: is a number; must be an object"},
        {"{" CLUSTER ", \"task\": {\"index\": 1}}", "task.type: is not there; must be \"chief\""},
        {"{" CLUSTER ", \"task\": {\"type\": 1, \"index\": 1}}", "task.type: is a number"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\"}}", "task.index: is not there; must be a whole number from 0"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 0.5}}", "task.index: is a number; must be a whole"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": \"x\"}}", "task.index: is a string that is no"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": \" 1\"}}", "task.index: is a string that is no"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 2}}", "there is no worker 2; must be from 0 to 1"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": -1}}", "there is no worker -1"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 4294967296}}", "there is no worker 4294967296"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 99999999999999999999}}", "too big integer"},
        {"{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": \"99999999999999999999\"}}", "a string that is no"},
        {"{" CLUSTER ", \"task\": {\"type\": \"ps\", \"index\": 0}}", "task: the cluster has no ps"},
        {"{" CLUSTER ", \"task\": {\"type\": \"evaluator\", \"index\": 0}}", "task: there is no evaluator"},
        {"{" CLUSTER ", \"task\": {\"type\": \"boss\", \"index\": 0}}", "task: unknown role 'boss'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lk_cluster *cluster;
        lk_error_clear();
        if (lk__cluster_parse(cases[i].text, strlen(cases[i].text), "TF_CONFIG", &cluster) != LK_ERR_FORMAT)
            fail_msg("not refused: %s", cases[i].text);
        assert_null(cluster);
        if (strncmp(lk_error_message(), "TF_CONFIG: ", 11) != 0 || !strstr(lk_error_message(), cases[i].message))
            fail_msg("%s: says %s", cases[i].text, lk_error_message());
    }
    lk_error_clear();
}

static char *repeat(const char *head, const char *piece, int n, const char *tail)
{
    size_t length = strlen(piece), first = strlen(head);
    char *text = malloc(first + (size_t)n * length + strlen(tail) + 1);
    assert_non_null(text);
    memcpy(text, head, first);
    for (int i = 0; i < n; i++)
        memcpy(text + first + (size_t)i * length, piece, length);
    memcpy(text + first + (size_t)n * length, tail, strlen(tail) + 1);
    return text;
}

static void refuse_repeated(const char *head, const char *piece, int n, const char *tail, const char *message)
{
    lk_cluster *cluster;
    char *text = repeat(head, piece, n, tail);
    lk_error_clear();
    assert_int_equal(lk__cluster_parse(text, strlen(text), "TF_CONFIG", &cluster), LK_ERR_FORMAT);
    assert_null(cluster);
    if (!strstr(lk_error_message(), message))
        fail_msg("says %s", lk_error_message());
    lk_error_clear();
    free(text);
}

static void what_is_huge_is_refused(void **state)
{
    (void)state;
    refuse_repeated("", "[", 100000, "", "maximum parsing depth");
    refuse_repeated("", "{\"a\":", 100000, "", "maximum parsing depth");
    refuse_repeated("", " ", LK_CLUSTER_BYTES + 1, "", "bytes are no description of a cluster");
    refuse_repeated("{\"cluster\": {\"worker\": [\"a:1\"", ", \"a:0\"", LK_CLUSTER_TASKS, "]}}", "65537 addresses");
    refuse_repeated("{\"cluster\": {\"worker\": [\"", "a", 254, ":1\"]}}", "aaa...' is no address");
    refuse_repeated("{\"cluster\": {\"", "r", 100000, "\": []}}", "rrr...': must be chief");
    char *text = repeat("{\"cluster\": {\"worker\": [\"a:1\"", ", \"a:0\"", LK_CLUSTER_TASKS - 1, "]}}");
    lk_cluster *cluster = parse(text);
    assert_int_equal(lk__cluster_count(cluster, LK_ROLE_WORKER), LK_CLUSTER_TASKS);
    lk__cluster_release(cluster);
    free(text);
}

/* Every prefix of a description is refused, and nothing is read past its end. */
static void a_cut_description_is_refused(void **state)
{
    (void)state;
    const char *whole = "{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 1}}";
    for (size_t bytes = 0; bytes < strlen(whole); bytes++) {
        lk_cluster *cluster;
        char *cut = malloc(bytes ? bytes : 1);
        assert_non_null(cut);
        memcpy(cut, whole, bytes);
        lk_error_clear();
        assert_int_equal(lk__cluster_parse(cut, bytes, "TF_CONFIG", &cluster), LK_ERR_FORMAT);
        free(cut);
    }
    lk_error_clear();
}

static void a_file_comes_before_the_variable(void **state)
{
    (void)state;
    const char *path = in_dir("cluster.json");
    lk_cluster *cluster;
    unsetenv("TF_CONFIG");
    assert_int_equal(lk__cluster_open(NULL, &cluster), LK_OK);
    assert_null(cluster);

    setenv("TF_CONFIG", "{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}", 1);
    assert_int_equal(lk__cluster_open(NULL, &cluster), LK_ERR_FORMAT);
    lk_error_clear();

    put_file(path, "{" CLUSTER "}"); /* the task of the variable, in the cluster of the file */
    assert_int_equal(lk__cluster_open(path, &cluster), LK_OK);
    assert_string_equal(lk__cluster_source(cluster), path);
    assert_int_equal(lk__cluster_task(cluster)->index, 1);
    lk__cluster_release(cluster);

    put_file(path, "{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 0}}");
    assert_int_equal(lk__cluster_open(path, &cluster), LK_OK);
    assert_int_equal(lk__cluster_task(cluster)->index, 0);
    lk__cluster_release(cluster);

    put_file(path, "{}");
    assert_int_equal(lk__cluster_open(path, &cluster), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), ": has no cluster; must be"));
    lk_error_clear();
    unlink(path);
    assert_int_equal(lk__cluster_open(path, &cluster), LK_ERR_NOT_FOUND);
    lk_error_clear();
    assert_int_equal(lk__cluster_open("/", &cluster), LK_ERR_IO);
    lk_error_clear();
    unsetenv("TF_CONFIG");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *text = "{" CLUSTER ", \"task\": {\"type\": \"worker\", \"index\": 1}}";
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_cluster *cluster;
        stop_failing_with(&f, lk__cluster_parse(text, strlen(text), "TF_CONFIG", &cluster));
        assert_true((cluster == NULL) == f.reached);
        lk__cluster_release(cluster);
    }
    assert_true(f.n >= 3);
}

static void processes_have_to_be_as_many(void **state)
{
    (void)state;
    lk_cluster *cluster = parse("{\"cluster\": {\"chief\": [\"c:1\"], " WORKERS ", \"ps\": [\"p:1\"]}}");
    assert_null(lk__cluster_task(cluster));
    assert_int_equal(lk__cluster_check_processes(cluster, 3), LK_OK);
    assert_int_equal(lk__cluster_check_processes(cluster, 1), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "TF_CONFIG: chief and workers are 3, but 1 process was started; start 3 "
                                            "(lockstep launch -n 3)");
    lk_error_clear();
    lk__cluster_release(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_tensorflow_writes_is_read), cmocka_unit_test(what_kubeflow_writes_is_read),
        cmocka_unit_test(what_is_wrong_is_named),         cmocka_unit_test(what_is_huge_is_refused),
        cmocka_unit_test(a_cut_description_is_refused),   FOLDER_TEST(a_file_comes_before_the_variable),
        cmocka_unit_test(every_allocation_may_fail),      cmocka_unit_test(processes_have_to_be_as_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
