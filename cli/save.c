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

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    bool no_a = stat(a, &x) != 0, no_b = stat(b, &y) != 0;
    if (no_a || no_b) return no_a && no_b && strcmp(a, b) == 0;
    return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool cli_check_paths(const char *command, const cli_path *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            const cli_path *to = &list[i], *other = &list[k];
            if (k == i || !to->written || !to->path || !other->path || !is_same_file(to->path, other->path)) continue;
            return cli_error(command, "%s %s would be written over %s %s: give another name", to->option, to->path,
                             other->option, other->path);
        }
    }
    return true;
}

bool cli_may_write(const char *command, const char *path)
{
    FILE *file = fopen(path, "ab"); /* what is there stays until there is something better */
    if (!file) return cli_error(command, "%s: cannot write: %s", path, strerror(errno));
    fclose(file);
    return true;
}

bool cli_may_replace(const char *command, const char *path)
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
    if (!cli_may_replace(command, path)) return false;
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
