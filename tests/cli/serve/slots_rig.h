/*
 * slots_rig.h - the slots of h2okv serve on the default model, without HTTP: jobs are put into the queue, rounds are
 * done by hand, and what a client would get is kept.
 */
#ifndef TEST_SLOTS_RIG_H
#define TEST_SLOTS_RIG_H

#include "llama/slots.h"

#include "support/check.h"

enum { SLOTS = 4, BUDGET = 256, ROOM = 384, NEW = 24 };

extern engine loaded;
extern serve_queue *queue;
extern slots s;
extern const char *const prompts[SLOTS];

/* cmocka group set-up and tear-down. */
int rig_start(void **state);
int rig_end(void **state);

/* What came of a request. */
typedef struct reply {
    char text[4096];
    size_t n;
    serve_token token[64];
    size_t n_tokens;
    bool done;
    enum serve_finish finish;
    serve_usage usage;
    int status; /* of a failure; 0: none */
    char param[32];
} reply;

serve_request *completion(const char *prompt, uint32_t max_tokens);
serve_request *chat(const char *said, uint32_t max_tokens);
void add_message(serve_request *r, const char *role, const char *content);

serve_job *put(serve_request *r);
void answer_all(serve_job **job, reply *out, size_t n); /* rounds until all of these have ended */
reply answer(serve_request *r);
void forget_all(void);         /* every slot is as new */
void clear_tokens(reply *r);

/* So many sentences of some 15 tokens, with a number in the first half that is asked for in the end. To be freed. */
char *long_text(uint32_t sentences);
uint32_t live(uint32_t seq);

#endif
