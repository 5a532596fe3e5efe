#!/bin/sh
# Builds llama.cpp from the fetched source into the cache folder, once:
#   $cache/llama.cpp-<version>-source/{include,lib}
# Not for this machine's CPU alone: every variant of the CPU backend is built and one is chosen at run time.
#
#   scripts/build-llama.sh [server]
#
# server: also llama.cpp's own server, as lib/llama-server (beside its backends, where it looks for them), for
# bench/bench_clients.c.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
out=$cache/$llama-source

is_there() { [ -d "$out" ] && { [ "$1" != server ] || [ -x "$out/lib/llama-server" ]; }; }

goal=${1:-llama}
case $goal in
    llama) with=OFF targets=llama ;;
    server) with=ON targets="llama llama-server" ;;
    *) fail "build-llama.sh $goal: only 'server' can be asked for" ;;
esac
! is_there "$goal" || exit 0
lock
! is_there "$goal" || exit 0

jobs=$(nproc)
[ "$jobs" -le 8 ] || jobs=8
say "building llama.cpp $llama_version from source with $jobs jobs; this takes several minutes"
git clone --quiet --no-checkout "$cache/$llama/source.bundle" "$tmp/source"
git -C "$tmp/source" -c advice.detachedHead=false checkout --quiet "$source_commit"
cmake -S "$tmp/source" -B "$tmp/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DGGML_OPENMP=OFF \
    -DLLAMA_BUILD_COMMON=$with -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=$with -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=$with -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_OPENSSL=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON '-DCMAKE_INSTALL_RPATH=$ORIGIN' >&2
cmake --build "$tmp/build" --parallel "$jobs" --target $targets >&2 # and with them ggml and its backends
mkdir -p "$tmp/out/lib"
cp -a "$tmp/build/bin/"*.so* "$tmp/out/lib/"
[ "$goal" != server ] || cp "$tmp/build/bin/llama-server" "$tmp/out/lib/"
# gcc 12 believes that _tile_loadconfig reads 8 bytes and drops the rest of the tile table: this variant (AMX) would
# end with an illegal instruction. Without it such machines take the next best one.
rm -f "$tmp/out/lib/libggml-cpu-sapphirerapids.so"
cp -a "$cache/$llama/include" "$tmp/out/include"
rm -rf "$out"
mv "$tmp/out" "$out"
