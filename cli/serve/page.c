/* page.c - the files of the built-in web page, by path; cmake/EmbedText.cmake makes them part of the program. */
#include "api.h"

#include <string.h>

extern const char serve_page_html[], serve_page_css[], serve_page_js[];

static const api_page pages[] = {
    { "/", "text/html; charset=utf-8", serve_page_html },
    { "/page.css", "text/css; charset=utf-8", serve_page_css },
    { "/page.js", "text/javascript; charset=utf-8", serve_page_js },
};

const api_page *api_find_page(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (strcmp(pages[i].path, path) == 0) return &pages[i];
    }
    return NULL;
}
