#!/bin/sh
# Makes this machine ready to build: Debian packages, llama.cpp, the default model, texts. Does nothing when all is there.
#
#   scripts/setup.sh [test] [model] [texts]
#
# test: also what the tests need, with OpenAI's client and a model with sliding windows. model: also the default model. texts: also the prose of `make eval`. LLAMA and LLAMA_DIR as in the Makefile.
# Packages are installed when that needs no question (root, or sudo without a password); else the one line
# to type is printed and the exit code is 3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
llama=${LLAMA:-prebuilt}
[ -z "${LLAMA_DIR:-}" ] || llama=folder

say() { printf 'h2okv: %s\n' "$*" >&2; }
wants() { case " $goals " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

missing=
need() { # PACKAGE COMMAND...: the package is missing unless the command succeeds
    name=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $name"
}

clang_can_sanitize() {
    program=$(mktemp)
    echo 'int main(void) { return 0; }' | clang -fsanitize=address,undefined -x c -o "$program" -
    result=$?
    rm -f "$program"
    return $result
}

# The package with clang's sanitizer libraries is named after clang's version.
clang_rt_package() {
    version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
    [ -n "$version" ] || version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p')
    for name in "libclang-rt-$version-dev" "libclang-common-$version-dev"; do
        [ -n "$(apt-cache show "$name" 2>/dev/null)" ] && echo "$name" && return
    done
    . /etc/os-release # no package lists yet: what Debian's releases have
    case ${VERSION_ID:-} in
        11) echo libclang-common-11-dev ;;
        12) echo libclang-rt-14-dev ;;
        *) echo libclang-rt-19-dev ;;
    esac
}

look() {
    missing=
    need cmake cmake --version
    need pkg-config pkg-config --version
    need libjansson-dev pkg-config --exists jansson
    [ "$llama" = off ] || need libedit-dev pkg-config --exists libedit # h2okv chat
    [ "$llama" = off ] || need libmicrohttpd-dev pkg-config --exists libmicrohttpd # h2okv serve
    if wants test; then
        need libcmocka-dev pkg-config --exists cmocka
        need clang clang --version
        clang_can_sanitize >/dev/null 2>&1 || missing="$missing $(clang_rt_package)"
        [ "$llama" = off ] || need chromium chromium --version # looks at the page of h2okv trace
        [ "$llama" = off ] || need curl curl --version # talks with h2okv serve
    fi
    [ "$llama" != source ] || need g++ g++ --version
}

install() {
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo="sudo -n"
    else
        return 1
    fi
    say "installing$missing"
    $sudo apt-get update -qq
    look # the lists may now name other packages
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
}

goals="$*"
look
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        say "missing (by Debian's names):$missing"
        exit 3
    fi
    if ! install; then
        say "these packages are missing; type this line, then run make again:"
        echo "sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
        exit 3
    fi
    look
    [ -z "$missing" ] || { say "still missing after the installation:$missing"; exit 3; }
fi

[ "$llama" = off ] && exit 0
parts=
case $llama in
    prebuilt | auto) parts=llama ;;
    source) parts=source ;;
    system | folder) ;;
    *) say "LLAMA=$llama: use prebuilt, source, system, auto or off"; exit 2 ;;
esac
! wants model || parts="$parts model"
! wants texts || parts="$parts texts"
# An older Python has no such client; then the tests leave it out.
! wants test || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || parts="$parts client"
! wants test || parts="$parts window"
"$here/fetch.sh" $parts
[ "$llama" != source ] || "$here/build-llama.sh"
