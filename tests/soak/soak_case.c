#include "soak_case.h"

#include <stdlib.h>
#include <string.h>

const char *const soak_disturbance_names[SOAK_DISTURBANCE_KINDS] = {
    [SOAK_KILL] = "kill",        [SOAK_LOSE] = "lost process", [SOAK_INTERRUPT] = "stop",
    [SOAK_PAUSE] = "pause",      [SOAK_DISK] = "full disk",    [SOAK_MEMORY] = "memory limit",
    [SOAK_CLOCK] = "clock jump", [SOAK_PIPE] = "closed pipe",  [SOAK_DAMAGE] = "damaged file"};

const char *soak_settings_value(const soak_settings *settings, const char *name)
{
    for (int i = 0; i < settings->count; i++)
        if (!settings->at[i].is_launch && strcmp(settings->at[i].row->name, name) == 0)
            return settings->at[i].value;
    return NULL;
}

void soak_settings_add(soak_settings *settings, const lk_option *row, bool is_launch, const char *value)
{
    if (settings->count == SOAK_MAX_SETTINGS || strlen(value) >= SOAK_VALUE_BYTES) {
        fprintf(stderr, "soak: too many settings, or a value too long: --%s %s\n", row->name, value);
        exit(1);
    }
    soak_setting *setting = &settings->at[settings->count++];
    *setting = (soak_setting){.row = row, .is_launch = is_launch};
    snprintf(setting->value, sizeof setting->value, "%s", value);
}

void soak_settings_remove(soak_settings *settings, int index)
{
    memmove(&settings->at[index], &settings->at[index + 1],
            (size_t)(settings->count - index - 1) * sizeof settings->at[0]);
    settings->count--;
}

bool soak_attempt_has_servers(const soak_attempt *attempt)
{
    return attempt->shape == SOAK_SERVERS || attempt->shape == SOAK_ROLES;
}

bool soak_attempt_has(const soak_attempt *attempt, soak_disturbance_kind kind)
{
    for (int i = 0; i < attempt->disturbance_count; i++)
        if (attempt->disturbances[i].kind == kind)
            return true;
    return false;
}
