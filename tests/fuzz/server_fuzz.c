/* Runs a parameter server: it takes the chief's set-up (to peer 1), pulses (to peer 2), and pulls and pushes (to the
 * service). See fuzz_post.h for the format of inputs. */
#include "fuzz_post.h"

#include "lockstep/parameter_server.h"

static void end(void *server)
{
    lk_parameter_server_interrupt(server);
}

static lk_train_config config_of_server(void)
{
    lk_train_config config;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    FUZZ_CHECK(lk_train_defaults(NULL, &config) == LK_OK);
    config.devices.strategy = "parameter-server";
    config.servers.role = LK_TRAIN_PS;
    config.servers.coordinator = "127.0.0.1:1";
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lk_train_config config;
    if (!config.servers.coordinator)
        config = config_of_server();
    fuzz_post_load(data, size, NULL, NULL); /* nothing is received before it runs */
    lk_parameter_server *server = lk_parameter_server_new(&config);
    FUZZ_CHECK(server);
    fuzz_post_load(data, size, end, server);
    fuzz_went_well(lk_parameter_server_run(server));
    lk_parameter_server_release(server);
    lk_error_clear();
    return 0;
}
