/* isa.c - the instruction sets of the kernels, for --isa. */
#include "cli.h"

#include "h2okv/advanced.h"

#include <string.h>

bool cli_check_isa(const char *command, const char *isa)
{
    const char *names[32] = { NULL };
    uint32_t i = 0;
    while (i < 31 && (names[i] = h2okv_isa_name(i)) != NULL) i++;
    if (!cli_parse_name(command, "--isa", isa, names, &i)) return false;
    if (h2okv_isa_usable(isa)) return true;
    return cli_error(command, "--isa %s cannot be used on this machine; `h2okv bench --isa list` shows which "
                     "can", isa);
}

void cli_list_isas(void)
{
    const char *best = h2okv_isa_best(), *name;
    for (uint32_t i = 0; (name = h2okv_isa_name(i)) != NULL; i++) {
        const char *what = h2okv_isa_usable(name) ? "usable" : "not usable here";
        printf("%-10s %s\n", name, strcmp(name, best) == 0 ? "usable, the best here" : what);
    }
}
