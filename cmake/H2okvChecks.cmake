# Checks of the tree as a whole, as entries of ctest. Those with a tree of their own build it below this one.
set(scripts ${PROJECT_SOURCE_DIR}/scripts)

add_test(NAME check.layers COMMAND ${scripts}/check-layers.sh)
add_test(NAME check.style COMMAND ${scripts}/check-style.sh)
add_test(NAME check.checks COMMAND ${PROJECT_SOURCE_DIR}/tests/scripts/test_checks.sh)
add_test(NAME check.eval COMMAND ${PROJECT_SOURCE_DIR}/tests/scripts/test_eval.sh)
add_test(NAME check.fetch COMMAND ${PROJECT_SOURCE_DIR}/tests/scripts/test_fetch.sh)
add_test(NAME check.find_llama COMMAND ${PROJECT_SOURCE_DIR}/tests/scripts/test_find_llama.sh)
add_test(NAME check.symbols COMMAND ${scripts}/check-symbols.sh $<TARGET_FILE:h2okv_shared> $<TARGET_FILE:h2okv>)
add_test(NAME check.install COMMAND ${scripts}/check-install.sh ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER})

# h2okv_check_tree(NAME OPTIONS option... COMMAND command...): configures and builds everything anew with these
# options, warnings as errors, then runs the command.
function(h2okv_check_tree name)
  cmake_parse_arguments(arg "" "" "OPTIONS;COMMAND" ${ARGN})
  set(tree ${PROJECT_BINARY_DIR}/check/${name})
  add_test(NAME check.${name} COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${PROJECT_SOURCE_DIR} ${tree} --build-generator ${CMAKE_GENERATOR} --build-noclean
    --build-options -DH2OKV_WERROR=ON -DH2OKV_CHECKS=OFF -DH2OKV_CACHE=${H2OKV_CACHE} ${arg_OPTIONS}
    --test-command ${arg_COMMAND})
endfunction()

h2okv_check_tree(no_llama OPTIONS -DH2OKV_LLAMA=off -DH2OKV_TESTS=OFF -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  COMMAND ${scripts}/check-no-llama.sh ${PROJECT_BINARY_DIR}/check/no_llama)

# Everything compiled by clang, and every test that needs no model under AddressSanitizer and UBSan.
h2okv_check_tree(sanitizers
  OPTIONS -DCMAKE_C_COMPILER=clang -DH2OKV_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Debug -DH2OKV_TESTS=ON
          -DH2OKV_LLAMA=${H2OKV_LLAMA} -DLLAMA_DIR=${LLAMA_DIR}
  COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${PROJECT_BINARY_DIR}/check/sanitizers
          --output-on-failure --no-tests=error --label-exclude model)

# Where threads share work, the kernels, the store on top of them and h2okv serve, and where they must not share
# anything, under ThreadSanitizer.
h2okv_check_tree(threads
  OPTIONS -DCMAKE_C_COMPILER=clang -DH2OKV_SANITIZE=thread -DCMAKE_BUILD_TYPE=Debug -DH2OKV_TESTS=ON -DH2OKV_LLAMA=off
  COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${PROJECT_BINARY_DIR}/check/threads
          --output-on-failure --no-tests=error --tests-regex "^(core\\.threads|kernels\\.threads|cli\\.serve_(http|http_hostile|queue)|store\\.attend)$")
