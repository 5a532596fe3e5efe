/* bench_machine.c - what `h2okv bench` says about the machine: processor, load, versions. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#ifdef H2OKV_HAVE_LLAMA
#include "h2okv/llama.h"
#endif

/* The value of the first "model name : value" line. */
static bool name_from_proc(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

void bench_look_at_machine(bench_machine *m)
{
    struct utsname system;
    *m = (bench_machine){ .processors = cli_cpus() };
    if (!name_from_proc(m->cpu, sizeof m->cpu)) {
        snprintf(m->cpu, sizeof m->cpu, "%s", uname(&system) == 0 ? system.machine : "unknown processor");
    }
    if (getloadavg(m->load, 3) != 3) m->load[0] = m->load[1] = m->load[2] = -1;
#ifdef H2OKV_HAVE_LLAMA
    snprintf(m->engine, sizeof m->engine, "llama.cpp %s, ggml %s", llama_version(), ggml_version());
#else
    snprintf(m->engine, sizeof m->engine, "no llama.cpp");
#endif
}
