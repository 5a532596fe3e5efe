/*
 * main.c - the program `h2okv`: finds the command and runs it.
 *
 *   h2okv COMMAND [options]   ->   commands[] by name   ->   cmd_COMMAND.c
 */
#include "cli.h"

#include "h2okv/h2okv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *heading; /* of the group that starts here */
    const cli_command *command;
} commands[] = {
    { "With a model (llama.cpp)", &cli_run },
    { NULL, &cli_chat },
    { NULL, &cli_serve },
    { NULL, &cli_trace },
    { NULL, &cli_eval },
    { NULL, &cli_bench },
    { "Without a model", &cli_demo },
    { NULL, &cli_replay },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out)
{
    fputs("h2okv: a KV cache that never grows past a budget. It keeps the newest tokens and\n"
          "the heavy hitters, the tokens that attention keeps coming back to (H2O).\n\n"
          "usage: h2okv COMMAND [options]\n", out);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].heading) fprintf(out, "\n%s\n", commands[i].heading);
        fprintf(out, "  %-9s %s\n", commands[i].command->name, commands[i].command->summary);
    }
    fputs("\nOther\n"
          "  help      'h2okv help COMMAND' is 'h2okv COMMAND --help'\n"
          "  version   the version, and whether this build has llama.cpp\n\n"
          "example:\n  h2okv run -p 'The three laws of motion are' -n 64\n", out);
}

static int print_version(void)
{
#ifdef H2OKV_HAVE_LLAMA
    printf("h2okv %s, with llama.cpp\n", h2okv_version());
#else
    printf("h2okv %s, without llama.cpp\n", h2okv_version());
#endif
    return CLI_OK;
}

static const cli_command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].command->name) == 0) return commands[i].command;
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS + 2] = { "help", "version" }, *near;
    bool option = name[0] == '-';
    for (int i = 0; i < N_COMMANDS; i++) names[i + 2] = commands[i].command->name;
    near = cli_nearest(name + strspn(name, "-"), names, option ? 2 : N_COMMANDS + 2);
    if (near) {
        cli_error("", "unknown %s '%s'; did you mean '%s%s'?", option ? "option" : "command", name,
                  option ? "--" : "", near);
    } else {
        cli_error("", "unknown %s '%s'; 'h2okv --help' lists the commands", option ? "option" : "command",
                  name);
    }
    return CLI_USAGE;
}

static int help_command(int argc, char **argv)
{
    const cli_command *command;
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    command = find_command(argv[1]);
    if (!command) return unknown_command(argv[1]);
    cli_help(stdout, command);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    const cli_command *command;
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0 || strcmp(name, "-V") == 0) {
        return print_version();
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return help_command(argc - 1, argv + 1);
    }
    command = find_command(name);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(name);
}

/* A stream that the caller closed must not become the number of the next file that is opened. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        bool closed = fcntl(fd, F_GETFD) == -1 && errno == EBADF;
        if (closed) (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
    }
}

int main(int argc, char **argv)
{
    int code;
    fill_standard_streams();
    signal(SIGPIPE, SIG_DFL); /* `| head` ends the program quietly, whatever the caller had set */
    code = run(argc, argv);
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && code == CLI_OK) {
        cli_error("", "cannot write to standard output: %s", strerror(errno ? errno : EIO));
        code = CLI_ENGINE;
    }
    return code;
}
