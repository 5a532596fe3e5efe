/*
 * floor.c - the budgets that are too small for a text, which is said before it is read rather than seen afterwards.
 *
 *   floor   the least budget that is advised: so many tokens, or so much of the text, whichever is more
 */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

/* The one place for these figures. The first row that names the policy, or none, counts. Below them perplexity was more
 * than 1.15 of the full cache's on one text or more (docs/quality.md, "Floors"). */
static const struct {
    const char *policy; /* NULL: any other */
    uint32_t tokens;
    double percent; /* of the text */
} floors[] = {
    { "default", 64, 5 },
    { NULL, 64, 10 },
};

uint32_t cli_floor(const char *policy, uint32_t text)
{
    size_t i = 0;
    uint32_t share;
    while (floors[i].policy && strcmp(floors[i].policy, policy) != 0) i++;
    share = (uint32_t)(text * floors[i].percent / 100);
    return share > floors[i].tokens ? share : floors[i].tokens;
}

void cli_warn_floor(const char *command, const char *policy, uint32_t budget, uint32_t text)
{
    uint32_t least = cli_floor(policy, text);
    char tokens[32];
    if (budget >= text || budget >= least) return;
    cli_warn(command, "--budget %" PRIu32 " is below %" PRIu32 ", the least that is advised for a text of %s tokens; "
             "`h2okv eval` measures what it costs", budget, least, cli_thousands(tokens, text));
}
