# Whether tests are built, and h2okv_add_test().
if(H2OKV_TESTS STREQUAL "auto")
  pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
  set(H2OKV_TESTS ${cmocka_FOUND})
  if(NOT cmocka_FOUND)
    message(STATUS "tests: off (cmocka is not installed)")
  endif()
elseif(H2OKV_TESTS)
  pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
endif()

# h2okv_add_test(NAME FILES file... [LIBS library...] [LABELS label...])
#
# One cmocka program. It links the static library, so tests may include headers of src/ and call h2okv__ names.
# Label `model`: needs llama.cpp and the default model; runs alone, for ggml's threads crawl beside other
# programs, and not in the sanitizer tree.
function(h2okv_add_test name)
  cmake_parse_arguments(arg "" "" "FILES;LIBS;LABELS" ${ARGN})
  string(REPLACE "." "_" target test_${name})
  add_executable(${target} ${arg_FILES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR}/adapters/llama)
  target_link_libraries(${target} PRIVATE h2okv_test_support ${arg_LIBS} h2okv PkgConfig::cmocka m)
  target_compile_definitions(${target} PRIVATE
    H2OKV_TEST_DIR="${PROJECT_SOURCE_DIR}/tests"
    H2OKV_TEST_CLI="${PROJECT_BINARY_DIR}/h2okv"
    H2OKV_TEST_MODEL="${H2OKV_DEFAULT_MODEL}")
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
  if("model" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
