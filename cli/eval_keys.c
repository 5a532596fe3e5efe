/*
 * eval_keys.c - the documents of `h2okv eval recall`, and whether an answer is right.
 *
 *   text:      |piece 0|piece 1|piece 2| ...            a piece ends where a sentence does
 *   document:  |piece 7|piece 8| The secret number of Linden is 48213. |piece 9| ... |question
 *
 * All is drawn from --seed and the document's number, so that every row reads the same documents.
 */
#include "eval.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_PIECE = 400 };

static const char *const names[] = {
    "Linden",  "Marlow", "Harper",  "Denver", "Juniper", "Clement", "Orchard", "Felix",  "Barley",  "Winter",
    "Saffron", "Oliver", "Bristol", "Copper", "Phoebe",  "Garnet",  "Mercer",  "Tulip",  "Ambrose", "Violet",
    "Conrad",  "Summit", "Harbor",  "Walnut", "Esther",  "Granite", "Meadow",  "Robin",  "Silver",  "Thomas",
    "Cedar",   "Martha", "Velvet",  "Quentin", "Dakota", "Lagoon",  "Heather", "Morgan", "Cobalt",  "Agnes",
};
enum { N_NAMES = sizeof names / sizeof names[0] };

/* ---- Chance ------------------------------------------------------------------------------------------- */

/* splitmix64: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators". */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((draw(state) >> 32) * n >> 32);
}

/* ---- Keys --------------------------------------------------------------------------------------------- */

uint32_t eval_documents(const eval_options *o)
{
    return (o->keys + o->questions - 1) / o->questions;
}

uint32_t eval_keys_in(const eval_options *o, uint32_t document)
{
    uint32_t left = o->keys - document * o->questions;
    return left < o->questions ? left : o->questions;
}

static void swap_keys(eval_key *a, eval_key *b)
{
    eval_key t = *a;
    *a = *b;
    *b = t;
}

/* Depths take turns over all keys; names differ within a document; the questions' order is not the depths'. */
void eval_draw(const eval_options *o, uint32_t document, const eval_pieces *p, eval_key *key, uint32_t *first_piece)
{
    uint64_t state = ((uint64_t)o->cache.seed << 32) + document;
    uint32_t n = eval_keys_in(o, document), start = below(&state, N_NAMES);
    *first_piece = below(&state, p->n);
    for (uint32_t i = 0; i < n; i++) {
        key[i].name = names[(start + i) % N_NAMES];
        key[i].number = 10000 + below(&state, 90000);
        key[i].depth = (document * o->questions + i) % o->n_depths;
    }
    for (uint32_t i = n; i > 1; i--) swap_keys(&key[i - 1], &key[below(&state, i)]);
}

/* ---- The text ----------------------------------------------------------------------------------------- */

/* Whether a piece may end before byte i: white space after a full stop, or anywhere in a piece without one. */
static bool may_cut(const cli_buffer *text, size_t start, size_t i)
{
    char before = text->data[i - 1];
    if (!isspace((unsigned char)text->data[i]) || isspace((unsigned char)before)) return false;
    return before == '.' || before == '!' || before == '?' || i - start > LONGEST_PIECE;
}

bool eval_cut(eval_pieces *p, const cli_buffer *text)
{
    size_t *start = malloc((text->n / 2 + 2) * sizeof *start), from = 0;
    *p = (eval_pieces){ .text = text, .start = start };
    if (!start) return false;
    for (size_t i = 1; i <= text->n; i++) {
        if (i < text->n && !may_cut(text, from, i)) continue;
        start[p->n++] = from;
        from = i;
    }
    start[p->n] = text->n;
    return true;
}

static size_t piece_length(const eval_pieces *p, uint32_t i)
{
    return p->start[i % p->n + 1] - p->start[i % p->n];
}

static bool write_piece(cli_buffer *out, const eval_pieces *p, uint32_t i)
{
    const char *bytes = p->text->data + p->start[i % p->n];
    size_t n = piece_length(p, i);
    if (out->n > 0 && !isspace((unsigned char)*bytes) && !cli_buffer_add(out, "\n\n", 2)) return false;
    for (; out->n == 0 && n > 1 && isspace((unsigned char)*bytes); n--) bytes++;
    return cli_buffer_add(out, bytes, n);
}

static bool write_key(cli_buffer *out, const eval_key *key)
{
    char line[80];
    int n = snprintf(line, sizeof line, "%sThe secret number of %s is %" PRIu32 ".", out->n > 0 ? " " : "", key->name,
                     key->number);
    return cli_buffer_add(out, line, (size_t)n);
}

bool eval_write_document(cli_buffer *out, const eval_options *o, const eval_pieces *p, uint32_t first, uint32_t n,
                         const eval_key *key, uint32_t n_keys)
{
    bool written[EVAL_MOST_QUESTIONS] = { false }, ok = true;
    double whole = 0, before = 0;
    for (uint32_t i = 0; i < n; i++) whole += (double)piece_length(p, first + i);
    for (uint32_t i = 0; i <= n && ok; i++) {
        for (uint32_t k = 0; k < n_keys && ok; k++) { /* at the first end of a sentence from its depth on */
            if (written[k] || (i < n && before < whole * o->depth[key[k].depth] / 100)) continue;
            ok = write_key(out, &key[k]);
            written[k] = true;
        }
        if (i == n || !ok) break;
        ok = write_piece(out, p, first + i);
        before += (double)piece_length(p, first + i);
    }
    return ok;
}

/* A later question first ends the sentence of the answer before it. */
bool eval_write_question(cli_buffer *out, const eval_key *key, bool first)
{
    char line[80];
    int n = snprintf(line, sizeof line, "%s\n\nThe secret number of %s is", first ? "" : ".", key->name);
    return cli_buffer_add(out, line, (size_t)n);
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

static const char digits[] = "0123456789";

bool eval_answer_ended(const char *answer)
{
    const char *number = answer + strcspn(answer, digits);
    size_t n = strspn(number, digits);
    return n > 5 || (n > 0 && number[n]);
}

bool eval_answer_right(const char *answer, uint32_t number)
{
    char right[16];
    const char *given = answer + strcspn(answer, digits);
    size_t n = strspn(given, digits), wanted = (size_t)snprintf(right, sizeof right, "%" PRIu32, number);
    return n == wanted && memcmp(given, right, n) == 0;
}
