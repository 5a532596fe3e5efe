#!/bin/sh
# The checks must find what they are for: each breach below is put into a small tree and must be named, and the
# tree without it must pass.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

fresh() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/include/h2okv" "$tree/tests/oracle" "$tree/adapters/llama" "$tree/cli" "$tree/examples"
    for layer in base kernels policies core store; do mkdir -p "$tree/src/$layer"; done
    good include/h2okv/h2okv.h '<stdint.h>'
    good include/h2okv/advanced.h '"h2okv.h"'
    good include/h2okv/llama.h '"h2okv.h"' '<llama.h>'
    good src/base/alloc.h '<h2okv/h2okv.h>'
    good src/kernels/kernels.h '"base/alloc.h"' '<immintrin.h>'
    good src/policies/h2o.c '<h2okv/advanced.h>'
    good src/core/lane.h '"base/alloc.h"' '"../kernels/kernels.h"'
    good src/store/store.c '"base/alloc.h"' '<h2okv/h2okv.h>'
    good adapters/llama/tap.c '<h2okv/llama.h>' '<ggml.h>' '<dlfcn.h>'
    good cli/main.c '<h2okv/h2okv.h>' '<jansson.h>'
    good tests/oracle/oracle.c '<math.h>'
    for folder in src adapters cli tests; do
        (cd "$tree/$folder" && find . -name '*.c' | sed 's|^\./||' && echo core/a.c) >"$tree/$folder/CMakeLists.txt"
    done
}

good() { # FILE INCLUDE...
    echo "/* $1 */" >"$tree/$1"
    file=$1
    shift
    for include in "$@"; do echo "#include $include" >>"$tree/$file"; done
}

expect() { # CHECK WORDS: the check fails and says so; no WORDS: it passes
    out=$("$root/scripts/check-$1.sh" "$tree" 2>&1)
    status=$?
    if [ -n "$2" ]; then
        [ $status = 1 ] && echo "$out" | grep -q "$2" && return
    else
        [ $status = 0 ] && return
    fi
    echo "check-$1: expected '${2:-success}', exit $status, it said:"
    echo "$out"
    failures=$((failures + 1))
}

layer() { # FILE INCLUDE: must be refused
    fresh
    echo "#include $2" >>"$tree/$1"
    expect layers "^$1:[0-9]*: "
}

fresh
expect layers ''
expect style ''
layer include/h2okv/h2okv.h '<llama.h>'
layer include/h2okv/h2okv.h '<unistd.h>'
layer src/base/alloc.h '"core/lane.h"'
layer src/base/alloc.h '"../core/lane.h"'
layer src/base/alloc.h '<pthread.h>'
layer src/base/alloc.h '"nowhere.h"'
layer src/kernels/kernels.h '"core/lane.h"'
layer src/policies/h2o.c '"core/lane.h"'
layer src/policies/h2o.c '"base/alloc.h"'
layer src/core/lane.h '<h2okv/llama.h>'
layer src/core/lane.h '<immintrin.h>'
layer src/core/lane.h '<ggml.h>'
layer src/store/store.c '"core/lane.h"'
layer adapters/llama/tap.c '"base/alloc.h"'
layer cli/main.c '"core/lane.h"'
layer cli/main.c '<llama.h>'
layer tests/oracle/oracle.c '<h2okv/h2okv.h>'
layer tests/oracle/oracle.c '"core/lane.h"'

fresh
echo 'int x;' >"$tree/src/core/a.c"
expect style 'src/core/a.c:1: a C file starts'
fresh
{ echo '/* a */'; seq 500 | sed 's|.*|/* line */|'; } >"$tree/src/core/a.c"
expect style 'src/core/a.c:501: more than 500 lines'
fresh
{ echo '/* a */'; seq 121 | tr -d '\n'; } >"$tree/src/core/a.c"
expect style 'src/core/a.c:2: more than 120 columns'
fresh
printf '/* a */\n\tint x;\n' >"$tree/src/core/a.c"
expect style 'src/core/a.c:2: a tab'
for open in 'void f(void)
{' 'void f(void) {'; do
    fresh
    { echo '/* a */'; echo "$open"; seq 99 | sed 's|.*|    g();|'; echo '}'; } >"$tree/src/core/a.c"
    expect style 'function of 101 lines'
done
fresh
{ echo '/* a */'; echo 'void f(void)'; echo '{'; seq 98 | sed 's|.*|    g();|'; echo '}'; } >"$tree/src/core/a.c"
expect style ''
fresh
echo '/* a */' >"$tree/src/core/forgotten.c"
expect style 'src/core/forgotten.c:1: not named in a CMakeLists.txt'
for text in /ho''me/me /ro''ot/x https://files.np''m.example py''pi.org; do
    fresh
    echo "see $text" >"$tree/README.md"
    expect style 'README.md:1:'
done

symbols() { # CODE WORDS: a library of this code is refused and the words are said; no WORDS: it passes
    fresh
    echo "$1" >"$tree/a.c"
    cc -fPIC -fvisibility=hidden -c "$tree/a.c" -o "$tree/a.o"
    cc -shared "$tree/a.o" -o "$tree/liba.so"
    ar rc "$tree/liba.a" "$tree/a.o"
    out=$("$root/scripts/check-symbols.sh" "$tree/liba.so" "$tree/liba.a" 2>&1)
    status=$?
    expected=${2:+1}
    [ $status = "${expected:-0}" ] && echo "$out" | grep -q "^ *$2$" && return
    echo "check-symbols: expected '${2:-success}' for '$1', exit $status, it said: $out"
    failures=$((failures + 1))
}
public='__attribute__((visibility("default")))'
symbols "$public int h2okv_f(void) { return 0; } static const char *const names[] = {\"a\"};
         const char *h2okv__name(int i) { return names[i]; }" ''
symbols "$public int foreign(void) { return 0; }" foreign
symbols "$public int h2okv__f(void) { return 0; }" h2okv__f
symbols "int foreign(void) { return 0; }" foreign
symbols "int h2okv__f(void) { static int calls; return calls++; }" 'calls.*'
symbols "int h2okv__count;" h2okv__count
symbols "int puts(const char *); int h2okv__f(void) { return puts(\"x\"); }" puts
symbols "char *getenv(const char *); char *h2okv__f(void) { return getenv(\"x\"); }" getenv

[ $failures = 0 ] && echo "all checks find what they are for"
[ $failures = 0 ]
