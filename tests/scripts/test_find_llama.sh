#!/bin/sh
# cmake/FindLlamaCpp.cmake on folders of every shape it should know, with empty files for headers and libraries.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failures=0

mkdir "$box/project"
cat >"$box/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(find NONE)
list(APPEND CMAKE_MODULE_PATH $root/cmake)
include(H2okvCacheFolder)
find_package(PkgConfig REQUIRED)
find_package(LlamaCpp)
get_target_property(includes h2okv::llama INTERFACE_INCLUDE_DIRECTORIES)
message("found \${LlamaCpp_ORIGIN}: \${includes} \${LlamaCpp_LIBRARIES}")
END

put() { # FILE...: empty files
    for file in "$@"; do
        mkdir -p "$box/$(dirname "$file")"
        : >"$box/$file"
    done
}

find_llama() { # cmake options; output in $box/out
    rm -rf "$box/build"
    H2OKV_CACHE=$box/cache PKG_CONFIG_LIBDIR=$box/pc \
        cmake -S "$box/project" -B "$box/build" "$@" >"$box/out" 2>&1
}

found() { # WORDS OPTIONS...
    words=$1
    shift
    find_llama "$@"
    grep -qF "found $words" "$box/out" && return
    echo "FAILED: '$*' should find '$words', it said:"
    cat "$box/out"
    failures=$((failures + 1))
}

refused() { # WORDS OPTIONS...
    words=$1
    shift
    find_llama "$@"
    status=$?
    [ $status != 0 ] && tr -s ' \n' ' ' <"$box/out" | grep -qF "$words" && return
    echo "FAILED: '$*' should be refused with '$words', exit $status, it said:"
    cat "$box/out"
    failures=$((failures + 1))
}

refused "H2OKV_LLAMA=lama: use auto" -DH2OKV_LLAMA=lama
refused "H2OKV_LLAMA=prebuilt: not found" -DH2OKV_LLAMA=prebuilt
refused "H2OKV_LLAMA=system: not found" -DH2OKV_LLAMA=system

put prefix/include/llama.h prefix/include/ggml.h
refused "no llama (LLAMA_DIR)" -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/prefix"
put prefix/lib/libllama.a prefix/lib/libggml.a prefix/lib/libggml-base.a
refused "no llama (LLAMA_DIR)" -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/prefix"
put prefix/lib/libllama.so prefix/lib/libllama-common.so prefix/lib/libggml.so prefix/lib/libggml-base.so
found "LLAMA_DIR: $box/prefix/include $box/prefix/lib/libllama.so;$box/prefix/lib/libggml.so;$box/prefix/lib/libggml-base.so" \
    -DH2OKV_LLAMA=prebuilt -DLLAMA_DIR="$box/prefix"
rm "$box/prefix/include/ggml.h"
refused "no ggml.h (LLAMA_DIR)" -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/prefix"
refused "no llama.h (LLAMA_DIR)" -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/nowhere"

put checkout/include/llama.h checkout/ggml/include/ggml.h
put checkout/build/bin/libllama.so checkout/build/bin/libggml.so checkout/build/bin/libggml-base.so
found "LLAMA_DIR: $box/checkout/include;$box/checkout/ggml/include $box/checkout/build/bin/libllama.so" \
    -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/checkout"

put flat/llama.h flat/ggml.h flat/libllama.v0.4.0.so flat/libllama-common.so flat/libggml.v0.4.0.so \
    flat/libggml-base.so flat/libggml-cpu-x64.so
found "LLAMA_DIR: $box/flat $box/flat/libllama.v0.4.0.so;$box/flat/libggml.v0.4.0.so;$box/flat/libggml-base.so" \
    -DH2OKV_LLAMA=auto -DLLAMA_DIR="$box/flat"

# An installed one: by CMake package, then by pkg-config, which comes first.
put usr/include/llama.h usr/include/ggml.h usr/lib/libllama.so.0 usr/lib/libggml.so.0 usr/lib/libggml-base.so.0
mkdir -p "$box/usr/lib/cmake/llama" "$box/pc"
cat >"$box/usr/lib/cmake/llama/llama-config.cmake" <<END
set(LLAMA_INCLUDE_DIR $box/usr/include)
set(LLAMA_LIB_DIR $box/usr/lib)
END
found "CMake package: $box/usr/include $box/usr/lib/libllama.so.0" -DH2OKV_LLAMA=system -DCMAKE_PREFIX_PATH="$box/usr"
cat >"$box/pc/llama.pc" <<END
prefix=$box/usr
includedir=\${prefix}/include
libdir=\${prefix}/lib
Name: llama
Description: test
Version: 1
END
found "pkg-config: $box/usr/include $box/usr/lib/libllama.so.0" -DH2OKV_LLAMA=system
found "pkg-config: $box/usr/include" -DH2OKV_LLAMA=auto

# auto: what was fetched comes before what is installed, prebuilt before source.
version=llama.cpp-$(sed -n 's/^llama_version=//p' "$root/scripts/pins/pins.sh")
for kind in -source ''; do
    folder=cache/$version$kind
    put $folder/include/llama.h $folder/include/ggml.h
    put $folder/lib/libllama.so $folder/lib/libggml.so $folder/lib/libggml-base.so
    found "$([ -n "$kind" ] && echo source || echo prebuilt): $box/$folder/include" -DH2OKV_LLAMA=auto
done
found "source: $box/cache/$version-source/include" -DH2OKV_LLAMA=source

[ $failures = 0 ] && echo "llama.cpp is found where it should be"
[ $failures = 0 ]
