/* cmd_run.c - being written. */
#include "cli.h"

static int cmd_run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return CLI_MISSING;
}

const cli_command cli_run = { .name = "run", .summary = "", .usage = "", .about = "", .example = "", .run = cmd_run };
