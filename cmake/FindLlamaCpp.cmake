# Finds llama.cpp (headers and shared libraries) and makes one target of it: h2okv::llama.
#
#   LLAMA_DIR set          that folder: an install prefix, a checkout with build/bin, or one flat folder
#   H2OKV_LLAMA=prebuilt   the prebuilt one that scripts/fetch.sh put into the cache folder
#   H2OKV_LLAMA=source     the one that scripts/build-llama.sh built from the fetched source
#   H2OKV_LLAMA=system     an installed one, by pkg-config (llama.pc) or CMake package (llama-config.cmake)
#   H2OKV_LLAMA=auto       prebuilt, else source, else system, else none
#   H2OKV_LLAMA=off        none
#
# Only shared libraries: the adapter asks the loader where libllama lies to find ggml's CPU backends beside it.
# Sets LlamaCpp_FOUND, LlamaCpp_ORIGIN, LlamaCpp_INCLUDE_DIRS, LlamaCpp_LIBRARIES (llama, ggml, ggml-base).

# Sets `out` to the shared library `name` in one of `dirs`: plain, or with the version in the name as the
# prebuilt ones have it (libllama.v0.4.0.so), or with the version behind (libllama.so.0).
function(_llama_library out name)
  set(${out} "" PARENT_SCOPE)
  foreach(dir IN LISTS ARGN)
    file(GLOB found "${dir}/lib${name}.so" "${dir}/lib${name}.dylib" "${dir}/lib${name}.v[0-9]*.so"
         "${dir}/lib${name}.v[0-9]*.dylib" "${dir}/lib${name}.so.[0-9]*")
    if(found)
      list(GET found 0 first)
      set(${out} "${first}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Sets `out` to the first of `dirs` that holds the file `name`.
function(_llama_header_dir out name)
  set(${out} "" PARENT_SCOPE)
  foreach(dir IN LISTS ARGN)
    if(EXISTS "${dir}/${name}")
      set(${out} "${dir}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(_llama_import name location)
  add_library(h2okv::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(h2okv::${name} PROPERTIES IMPORTED_LOCATION "${location}")
endfunction()

# Makes h2okv::llama out of the include and library folders given; does nothing when a piece is missing
# and says in `missing` which.
function(_llama_from origin include_dirs lib_dirs)
  _llama_header_dir(llama_h llama.h ${include_dirs})
  _llama_header_dir(ggml_h ggml.h ${include_dirs})
  _llama_library(llama llama ${lib_dirs})
  _llama_library(ggml ggml ${lib_dirs})
  _llama_library(ggml_base ggml-base ${lib_dirs})
  foreach(piece llama_h ggml_h llama ggml ggml_base)
    if(NOT ${piece})
      string(REGEX REPLACE "_h$" ".h" piece ${piece})
      set(LlamaCpp_MISSING "${piece} (${origin})" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  _llama_import(llama "${llama}")
  _llama_import(ggml "${ggml}")
  _llama_import(ggml_base "${ggml_base}")
  set(include_dirs ${llama_h} ${ggml_h})
  list(REMOVE_DUPLICATES include_dirs)
  target_include_directories(h2okv::llama SYSTEM INTERFACE ${include_dirs})
  target_link_libraries(h2okv::llama INTERFACE h2okv::ggml h2okv::ggml_base)
  set(LlamaCpp_ORIGIN ${origin} PARENT_SCOPE)
  set(LlamaCpp_INCLUDE_DIRS ${include_dirs} PARENT_SCOPE)
  set(LlamaCpp_LIBRARIES "${llama}" "${ggml}" "${ggml_base}" PARENT_SCOPE)
endfunction()

# A folder as people have it: installed, a checkout, or everything flat.
macro(_llama_from_folder origin dir)
  _llama_from(${origin} "${dir}/include;${dir}/ggml/include;${dir}"
              "${dir}/lib;${dir}/lib64;${dir}/build/bin;${dir}/bin;${dir}")
endmacro()

macro(_llama_from_system)
  pkg_check_modules(_llama_pc QUIET llama)
  if(_llama_pc_FOUND)
    pkg_get_variable(_llama_pc_include llama includedir)
    pkg_get_variable(_llama_pc_lib llama libdir)
    _llama_from(pkg-config "${_llama_pc_include}" "${_llama_pc_lib}")
  endif()
  if(NOT TARGET h2okv::llama)
    find_package(llama CONFIG QUIET)
    if(llama_FOUND)
      _llama_from("CMake package" "${LLAMA_INCLUDE_DIR}" "${LLAMA_LIB_DIR};${LLAMA_BIN_DIR}")
    endif()
  endif()
endmacro()

if(H2OKV_LLAMA STREQUAL "off")
  set(_llama_kinds "")
elseif(LLAMA_DIR)
  set(_llama_kinds folder)
elseif(H2OKV_LLAMA STREQUAL "auto")
  set(_llama_kinds prebuilt source system)
elseif(H2OKV_LLAMA MATCHES "^(prebuilt|source|system)$")
  set(_llama_kinds ${H2OKV_LLAMA})
else()
  message(FATAL_ERROR "H2OKV_LLAMA=${H2OKV_LLAMA}: use auto, prebuilt, source, system or off")
endif()

set(LlamaCpp_MISSING "")
foreach(_kind IN LISTS _llama_kinds)
  if(_kind STREQUAL "folder")
    get_filename_component(_llama_abs "${LLAMA_DIR}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
    _llama_from_folder(LLAMA_DIR "${_llama_abs}")
  elseif(_kind STREQUAL "prebuilt")
    _llama_from_folder(prebuilt "${H2OKV_PREBUILT_DIR}")
  elseif(_kind STREQUAL "source")
    _llama_from_folder(source "${H2OKV_SOURCE_BUILD_DIR}")
  else()
    _llama_from_system()
  endif()
  if(TARGET h2okv::llama)
    break()
  endif()
endforeach()

set(LlamaCpp_FOUND FALSE)
if(TARGET h2okv::llama)
  set(LlamaCpp_FOUND TRUE)
  list(GET LlamaCpp_LIBRARIES 0 _llama_library)
  message(STATUS "llama.cpp: ${LlamaCpp_ORIGIN}, ${_llama_library}")
elseif(H2OKV_LLAMA STREQUAL "off")
  message(STATUS "llama.cpp: off (core library, demo and replay only)")
elseif(H2OKV_LLAMA STREQUAL "auto" AND NOT LLAMA_DIR)
  message(STATUS "llama.cpp: none found (core library, demo and replay only); scripts/fetch.sh llama gets one")
elseif(LLAMA_DIR)
  message(FATAL_ERROR "LLAMA_DIR=${LLAMA_DIR}: no ${LlamaCpp_MISSING}. It must hold llama.h and the ggml headers "
          "(include/, ggml/include/) and the shared libraries llama, ggml, ggml-base (lib/, build/bin/).")
else()
  message(FATAL_ERROR "H2OKV_LLAMA=${H2OKV_LLAMA}: not found ${LlamaCpp_MISSING}. See docs/install.md.")
endif()
