/* page.c - the files of the built-in web page, by path. */
#include "api.h"

#include <string.h>

static const api_page pages[] = {
    { "/", "text/plain; charset=utf-8",
      "h2okv serve. POST /v1/chat/completions, POST /v1/completions; GET /v1/models, /health, /metrics, "
      "/live/SLOT.\n" },
};

const api_page *api_find_page(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (strcmp(pages[i].path, path) == 0) return &pages[i];
    }
    return NULL;
}
