/* A PJRT plug-in whose devices can do nothing. $LOCKSTEP_TEST_PJRT, which tests set, decides its answers. */
#include "pjrt/pjrt_api.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lk_pjrt_error {
    const char *message;
};

struct lk_pjrt_device {
    char text[64];
};

struct lk_pjrt_client {
    lk_pjrt_device *devices[2];
};

static int errors, clients; /* not yet destroyed */

static int is(const char *mode)
{
    const char *asked = getenv("LOCKSTEP_TEST_PJRT");
    return asked && strcmp(asked, mode) == 0;
}

static lk_pjrt_error *fail(const char *message)
{
    lk_pjrt_error *error = malloc(sizeof *error);
    if (!error)
        abort();
    error->message = message;
    errors++;
    return error;
}

/* Like real plug-ins, it refuses a struct that is too small. */
static lk_pjrt_error *check(const lk_pjrt_head *head, size_t size)
{
    return head->size < size || head->extensions ? fail("a struct of another size") : NULL;
}

static void error_destroy(lk_pjrt_destroy_error *args)
{
    errors--;
    free(args->error);
}

static void error_message(lk_pjrt_read_error *args)
{
    args->message = args->error->message;
    args->message_size = strlen(args->message);
}

static lk_pjrt_error *initialize(lk_pjrt_head *args)
{
    return is("no set-up") ? fail("the set-up\nfailed") : check(args, sizeof *args);
}

static lk_pjrt_error *client_create(lk_pjrt_create_client *args)
{
    static lk_pjrt_device devices[2] = {{"TEST_0(process=0)"}, {"TEST_1\x1b[2J(process=0)\n"}};
    static lk_pjrt_client client = {{&devices[0], &devices[1]}};
    if (is("no client"))
        return fail("the device is in use by process 7");
    if (is("crash"))
        abort();
    while (is("no answer"))
        pause();
    clients++;
    args->client = &client;
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *client_destroy(lk_pjrt_destroy_client *args)
{
    clients--;
    return is("no end") ? fail("it would not end") : check(&args->head, sizeof *args);
}

static lk_pjrt_error *client_platform(lk_pjrt_client_text *args)
{
    args->text = "test and what is not of it";
    args->text_size = 4;
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *client_version(lk_pjrt_client_text *args)
{
    args->text = is("no version") ? NULL : "first line\nsecond line\n";
    args->text_size = args->text ? strlen(args->text) : 0;
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *client_devices(lk_pjrt_list_devices *args)
{
    args->devices = args->client->devices;
    args->n_devices = is("no device") ? 0 : is("many devices") ? (size_t)1 << 40 : 2;
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *device_description(lk_pjrt_describe_device *args)
{
    if (is("no description") && strncmp(args->device->text, "TEST_1", 6) == 0)
        return fail("it went away");
    args->description = (lk_pjrt_description *)args->device;
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *description_text(lk_pjrt_description_text *args)
{
    args->text = ((const lk_pjrt_device *)args->description)->text;
    args->text_size = strlen(args->text);
    return check(&args->head, sizeof *args);
}

static lk_pjrt_error *upload(lk_pjrt_upload *args)
{
    (void)args;
    return fail("the device has no memory");
}

static lk_pjrt_error *compile(lk_pjrt_compile *args)
{
    (void)args;
    return fail("nothing can be compiled");
}

static lk_pjrt_error *memory_stats(lk_pjrt_memory_stats *args)
{
    (void)args;
    return fail("nothing is known about memory");
}

static lk_pjrt_error *topology_create(lk_pjrt_create_topology *args)
{
    (void)args;
    return fail("no topology is known");
}

/* Returns the number of errors and clients that were not destroyed. */
int lk_test_pjrt_left(void);

__attribute__((visibility("default"))) int lk_test_pjrt_left(void)
{
    return errors + clients;
}

const lk_pjrt_api *GetPjrtApi(void);

__attribute__((visibility("default"))) const lk_pjrt_api *GetPjrtApi(void)
{
    static lk_pjrt_api api = {
        .head = {sizeof api, NULL},
        .version = {{sizeof api.version, NULL}, 0, 81},
        .error_destroy = error_destroy,
        .error_message = error_message,
        .initialize = initialize,
        .client_create = client_create,
        .client_destroy = client_destroy,
        .client_platform = client_platform,
        .client_version = client_version,
        .client_addressable_devices = client_devices,
        .device_description = device_description,
        .upload = upload,
        .compile = compile,
        .memory_stats = memory_stats,
        .topology_create = topology_create,
        .description_debug_text = description_text,
    };
    api.head.size = is("a short table") ? sizeof api - sizeof(void *) : is("no table") ? 8 : sizeof api;
    api.version.major = is("version 1") ? 1 : 0;
    return is("nothing") ? NULL : &api;
}
