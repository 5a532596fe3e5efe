# Where scripts/fetch.sh keeps what it fetched. The names here and in scripts/pins.sh are the same.
if(NOT "$ENV{H2OKV_CACHE}" STREQUAL "")
  set(default_cache "$ENV{H2OKV_CACHE}")
elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(default_cache "$ENV{XDG_CACHE_HOME}/h2okv")
else()
  set(default_cache "$ENV{HOME}/.cache/h2okv")
endif()
set(H2OKV_CACHE "${default_cache}" CACHE PATH "Folder with the fetched llama.cpp and default model")

set(H2OKV_LLAMA_VERSION 0.4.0)
set(H2OKV_PREBUILT_DIR "${H2OKV_CACHE}/llama.cpp-${H2OKV_LLAMA_VERSION}")
set(H2OKV_SOURCE_BUILD_DIR "${H2OKV_CACHE}/llama.cpp-${H2OKV_LLAMA_VERSION}-source")
set(H2OKV_DEFAULT_MODEL "${H2OKV_CACHE}/models/SmolLM2-135M-Instruct.Q4_1.gguf")
