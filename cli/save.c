/*
 * save.c - a file that is there whole or not at all: written beside its place, then renamed.
 *
 *   cli_save_open -> PATH.XXXXXX -> cli_save_keep: PATH      cli_save_drop: nothing is left
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A rename would put a plain file in the place of a device. */
static bool may_replace(const char *command, const char *path)
{
    struct stat info;
    if (stat(path, &info) || S_ISREG(info.st_mode)) return true;
    return cli_error(command, "%s: cannot write: is %s", path,
                     S_ISDIR(info.st_mode) ? "a directory" : "not a regular file, and the output is written beside it "
                                                             "and then renamed");
}

/* As open() would have made it: mkstemp lets only the owner read. */
static void usual_mode(int file)
{
    mode_t mask = umask(0);
    umask(mask);
    (void)!fchmod(file, 0666 & ~mask);
}

static void forget_name(cli_saving *s)
{
    cli_remove_when_killed(NULL);
    free(s->temporary);
    s->temporary = NULL;
}

bool cli_save_open(cli_saving *s, const char *command, const char *path)
{
    size_t room = strlen(path) + sizeof ".XXXXXX";
    int file;
    *s = (cli_saving){ .command = command, .path = path };
    if (!may_replace(command, path)) return false;
    s->temporary = malloc(room);
    if (!s->temporary) return cli_error(command, "out of memory for a file name");
    snprintf(s->temporary, room, "%s.XXXXXX", path);
    file = mkstemp(s->temporary);
    if (file >= 0) {
        usual_mode(file);
        s->file = fdopen(file, "wb");
        cli_remove_when_killed(s->temporary);
        if (s->file) return true;
        close(file);
        unlink(s->temporary);
    }
    cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    forget_name(s);
    return false;
}

bool cli_save_check(cli_saving *s)
{
    bool good = fflush(s->file) == 0 && !ferror(s->file);
    if (!good && !s->error) s->error = errno ? errno : EIO;
    return good;
}

bool cli_save_keep(cli_saving *s)
{
    bool bad;
    errno = 0;
    bad = !cli_save_check(s);
    bad = fclose(s->file) || bad;
    s->file = NULL;
    bad = bad || rename(s->temporary, s->path);
    if (bad) cli_error(s->command, "%s: cannot write: %s", s->path, strerror(s->error ? s->error : errno));
    if (bad) unlink(s->temporary);
    forget_name(s);
    return !bad;
}

void cli_save_drop(cli_saving *s)
{
    if (s->file) fclose(s->file);
    if (s->temporary) unlink(s->temporary);
    s->file = NULL;
    forget_name(s);
}
