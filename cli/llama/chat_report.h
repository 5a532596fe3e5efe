/* chat_report.h - what `h2okv chat` says about a conversation: for people, and as lines of JSON. */
#ifndef H2OKV_CLI_CHAT_REPORT_H
#define H2OKV_CLI_CHAT_REPORT_H

#include "talk.h"

void chat_report_text(FILE *out, const talk *t);

/* Both: false, an error has been printed. The text is an answer's. */
bool chat_report_json(FILE *out, const talk *t);
bool chat_answer_json(FILE *out, const talk *t, const talk_answer *answer, const cli_buffer *text);

#endif
