/*
 * grammar.c - the grammar behind response_format json_object: one JSON object.
 *
 * White space is bounded, or a model that likes it would go on for ever; \u stands for no half of a surrogate pair, as
 * such an answer would be no text.
 */
#include "request.h"

const char api_json_grammar[] =
    "root ::= object\n"
    "object ::= \"{\" ws ( pair ( \",\" ws pair )* )? \"}\" \n"
    "pair ::= string \":\" ws value\n"
    "array ::= \"[\" ws ( value ( \",\" ws value )* )? \"]\" ws\n"
    "value ::= inner | array | string | number | ( \"true\" | \"false\" | \"null\" ) ws\n"
    "inner ::= object ws\n"
    "string ::= \"\\\"\" char* \"\\\"\" ws\n"
    "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ( [\"\\\\/bfnrt] | \"u\" code )\n"
    "code ::= [0-9a-cA-CefEF] hex hex hex | [dD] [0-7] hex hex\n"
    "hex ::= [0-9a-fA-F]\n"
    "number ::= \"-\"? ( \"0\" | [1-9] [0-9]{0,15} ) ( \".\" [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,2} )? ws\n"
    "ws ::= ( \" \" | \"\\n\" [ \\t]{0,16} )?\n";
