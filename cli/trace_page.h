/* trace_page.h - the files trace_page.html, .css and .js as text; cmake/EmbedText.cmake makes the definitions. */
#ifndef H2OKV_CLI_TRACE_PAGE_H
#define H2OKV_CLI_TRACE_PAGE_H

extern const char trace_page_html[], trace_page_css[], trace_page_js[];

#endif
