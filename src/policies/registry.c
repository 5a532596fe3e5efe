/* registry.c - the built-in policies by name. A new one: its own file, a line here, a line in policies.h. */
#include "policies.h"

#include <string.h>

static const h2okv_policy *const built_in[] = {
    &h2okv__policy_default,
    &h2okv__policy_h2o,
    &h2okv__policy_h2o_paper,
    &h2okv__policy_snapkv,
    &h2okv__policy_tova,
    &h2okv__policy_lifetime,
    &h2okv__policy_streaming,
    &h2okv__policy_window,
    &h2okv__policy_random,
    &h2okv__policy_full,
};

enum { N_BUILT_IN = sizeof built_in / sizeof built_in[0] };

const char *h2okv_policy_name(uint32_t index)
{
    return index < N_BUILT_IN ? built_in[index]->name : NULL;
}

const char *h2okv_policy_summary(uint32_t index)
{
    return index < N_BUILT_IN ? built_in[index]->summary : NULL;
}

const h2okv_policy *h2okv_policy_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < N_BUILT_IN; i++) {
        if (strcmp(built_in[i]->name, name) == 0) {
            return built_in[i];
        }
    }
    return NULL;
}
