/* xml.h - whether a text is well-formed XML of the plain kind: elements, attributes, text, &#n;, nothing else. */
#ifndef TEST_XML_H
#define TEST_XML_H

#include <stddef.h>

/* NULL when it is, else where it is not. */
const char *xml_fault(const char *text);

/* A file's bytes with a NUL behind them, the caller's to free; fails the test when it cannot be read. */
char *file_bytes(const char *path);

#endif
