/* request.c - requests in JSON -> serve_request. */
#include "serve.h"

#include <stdlib.h>

void serve_request_free(serve_request *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_messages; i++) {
        free(r->messages[i].role);
        free(r->messages[i].content);
    }
    for (size_t i = 0; i < r->n_stops; i++) free(r->stops[i]);
    free(r->messages);
    free(r->prompt);
    free(r->grammar);
    free(r);
}
