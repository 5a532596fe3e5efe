#!/bin/sh
# Who may include whom. Prints each #include that breaks the table below as file:line; exit 1 if there is one.
#
#   scripts/check-layers.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

# A layer, and the layers it may include; its own folder is always allowed. `c` is the C11 library, `posix` any
# other <header>, `isa` the intrinsics, `engine` llama.cpp's own headers.
table='
include        : include c
include-llama  : include engine
base           : include include-advanced c
kernels        : base include c isa
policies       : include-advanced c
core           : base kernels include include-advanced c
store          : base kernels include include-advanced c
adapters       : include include-advanced include-llama engine c posix
cli            : include include-advanced include-llama jansson microhttpd c posix
examples       : include include-advanced include-llama c posix
bench          : include include-advanced include-llama base kernels engine c posix
oracle         : c
'

folders=
for folder in include src adapters cli examples bench tests/oracle; do
    [ ! -d "$folder" ] || folders="$folders $folder"
done

find $folders -name '*.[ch]' | sort | xargs -r grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null |
awk -v table="$table" '
function exists(path,    line, result) {
    result = (getline line < path) >= 0
    close(path)
    return result
}

function plain(path) { # a/b/../c -> a/c
    while (match(path, /[^\/]+\/\.\.\//)) path = substr(path, 1, RSTART - 1) substr(path, RSTART + RLENGTH)
    return path
}

function layer_of_file(path) {
    if (path == "include/h2okv/llama.h") return "include-llama"
    if (path == "include/h2okv/advanced.h") return "include-advanced"
    if (path ~ /^tests\/oracle\//) return "oracle"
    if (path ~ /^src\//) sub(/^src\//, "", path)
    sub(/\/.*/, "", path)
    return path
}

function layer_of_system(name) {
    if (name ~ /^(llama|gguf|ggml.*)\.h$/) return "engine"
    if (name ~ /^(immintrin|arm_neon|arm_sve|cpuid)\.h$/) return "isa"
    if (name ~ /^(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|uchar|wchar|wctype)\.h$/) return "c"
    if (name == "jansson.h") return "jansson"
    if (name == "microhttpd.h") return "microhttpd"
    return "posix"
}

# The layer that an include of `name` in `file` reaches.
function target(file, name, quoted,    dir) {
    dir = file
    sub(/[^\/]*$/, "", dir)
    if (quoted && exists(plain(dir name))) return layer_of_file(plain(dir name))
    if (exists("include/" name)) return layer_of_file("include/" name)
    if (exists(plain("src/" name))) return layer_of_file(plain("src/" name))
    if (exists(plain("tests/" name))) return layer_of_file(plain("tests/" name))
    return quoted && layer_of_system(name) != "engine" ? "unknown file" : layer_of_system(name)
}

BEGIN {
    lines = split(table, row, "\n")
    for (i = 1; i <= lines; i++) {
        words = split(row[i], word, " ")
        for (j = 1; j <= words; j++) if (word[j] != ":") allowed[word[1], word[j]] = 1 # the layer itself too
    }
    allowed["include-advanced", "include"] = allowed["include-advanced", "c"] = 1
}

{
    split($0, part, ":")
    file = part[1]
    name = $0
    quoted = name ~ /include[ \t]*"/
    sub(/^[^<"]*[<"]/, "", name)
    sub(/[>"].*/, "", name)
    from = layer_of_file(file)
    to = target(file, name, quoted)
    if (!((from, to) in allowed)) {
        printf "%s:%s: %s must not include %s (%s)\n", file, part[2], from, name, to
        bad++
    }
    count++
}

END {
    printf "layers: %d includes, %d against the table\n", count, bad
    exit bad > 0
}'
