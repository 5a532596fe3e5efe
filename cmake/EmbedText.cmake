# A text file as an array of C: cmake -DIN=page.html -DOUT=page.c -DNAME=page_html -P EmbedText.cmake
#
# Numbers, not a string: C compilers need not take strings of more than 4,095 characters.
file(READ "${IN}" hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
if(bytes MATCHES "0x[89a-f]")
  message(FATAL_ERROR "${IN}: has to be ASCII; escape other characters in the file's own way")
endif()
get_filename_component(file "${IN}" NAME)
file(WRITE "${OUT}" "/* ${file}, by cmake/EmbedText.cmake. */\n"
  "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0\n};\n")
