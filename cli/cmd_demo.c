/* cmd_demo.c - being written. */
#include "cli.h"

static int cmd_demo(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return CLI_MISSING;
}

const cli_command cli_demo = { .name = "demo", .summary = "", .usage = "", .about = "", .example = "", .run = cmd_demo };
