#!/bin/sh
# An installed h2okv works: the program runs, and small programs build against it by pkg-config and by CMake.
#
#   scripts/check-install.sh BUILD_DIR CC
set -eu
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix/usr" >/dev/null
libdir=$(dirname "$(find "$prefix/usr" -name h2okv.pc)")
export PKG_CONFIG_PATH="$libdir"

"$prefix/usr/bin/h2okv" demo >/dev/null

mkdir "$prefix/user"
cat >"$prefix/user/core.c" <<'END'
#include <h2okv/h2okv.h>
#include <h2okv/advanced.h>
#include <h2okv/attention.h>
int main(void) { return h2okv_version()[0] == '\0'; }
END
cat >"$prefix/user/llama.c" <<'END'
#include <h2okv/llama.h>
int main(void) { return llama_max_devices() == 0 || h2okv_llama_load_backends(0) != H2OKV_OK; }
END
cat >"$prefix/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(h2okv REQUIRED)
add_executable(core core.c)
target_link_libraries(core h2okv::h2okv)
add_executable(core_shared core.c)
target_link_libraries(core_shared h2okv::h2okv_shared)
if(TARGET h2okv::h2okv_llama_shared)
  add_executable(llama llama.c)
  target_link_libraries(llama h2okv::h2okv_llama_shared)
endif()
END
cd "$prefix/user"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix/usr" -DCMAKE_C_COMPILER="$2" >log 2>&1 && cmake --build build >>log 2>&1 ||
    { cat log; exit 1; }
for program in core core_shared llama; do
    [ ! -x build/$program ] || build/$program
done

$2 core.c $(pkg-config --cflags --libs h2okv) -Wl,-rpath,"$libdir/.." -o core
./core
if pkg-config --exists h2okv_llama; then
    $2 llama.c $(pkg-config --cflags --libs h2okv_llama) -Wl,-rpath,"$libdir/.." -o llama
    ./llama
fi
