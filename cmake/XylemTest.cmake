# SPDX-License-Identifier: Apache-2.0
#
# Functions that make and register tests. Each executable is one test of ctest, or SHARDS tests. If each test case had a
# process of its own, starting the processes would take most of the time.

# UCX's memory hooks fail under GCC's thread sanitizer. The suppressions of the sanitizers concern only libraries that
# Xylem uses.
set(XYLEM_TEST_ENVIRONMENT)
if(XYLEM_SANITIZE)
  # Without a symbolizer, reports contain no function names, and suppressions by function match nothing.
  find_program(XYLEM_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer
    HINTS /usr/lib/llvm-19/bin REQUIRED DOC "llvm-symbolizer (package llvm-19)")
  set(XYLEM_TEST_ENVIRONMENT
    UCX_MEM_EVENTS=n
    ASAN_OPTIONS=external_symbolizer_path=${XYLEM_SYMBOLIZER}:detect_stack_use_after_return=1:strict_string_checks=1
    LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizer/lsan.supp:print_suppressions=0
    UBSAN_OPTIONS=external_symbolizer_path=${XYLEM_SYMBOLIZER}:print_stacktrace=1
    TSAN_OPTIONS=external_symbolizer_path=${XYLEM_SYMBOLIZER}:suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizer/tsan.supp:halt_on_error=1)
endif()
set(XYLEM_TEST_KINDS unit model process golden fuzz conformance torch ucx package layering)

set(XYLEM_FUZZ_SECONDS 10 CACHE STRING "How long a test of a fuzz target explores")
set(XYLEM_FUZZ_SEED 1 CACHE STRING "Seed of that exploration; 0 draws one")
# Xylem is optimised. Tests are not, since most take longer to compile than to run.
set(XYLEM_COMPUTING_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
set(XYLEM_TEST_OPTIONS $<$<OR:$<CONFIG:Release>,$<BOOL:${XYLEM_SANITIZE}>>:-O0>)
# Half of the time to compile a test goes into the headers of gtest and gmock, so they are precompiled. Tests must
# still include them: clang-tidy compiles without precompiled headers.
if(XYLEM_PRECOMPILE)
  foreach(kind TEST COMPUTING_TEST)
    string(TOLOWER "xylem_${kind}_headers" headers)
    add_library(${headers} OBJECT support/headers.cc)
    xylem_target_defaults(${headers})
    # -fPIE, since the executables that use these headers are compiled with it.
    target_compile_options(${headers} PRIVATE ${XYLEM_${kind}_OPTIONS} -fPIE)
    target_link_libraries(${headers} PRIVATE GTest::gmock GTest::gtest_main)
    xylem_precompile(${headers} <gmock/gmock.h> <gtest/gtest.h>)
  endforeach()
endif()

add_library(one_thread OBJECT support/one_thread.cc)
xylem_target_defaults(one_thread)

# Targets that build everything for the tests of one kind.
foreach(kind IN LISTS XYLEM_TEST_KINDS)
  add_custom_target(${kind}_tests)
endforeach()
if(TARGET xylem_command)
  add_dependencies(process_tests xylem_command)
  add_dependencies(golden_tests xylem_command)
endif()

# Checks the caller's arg_LABELS.
function(xylem_check_labels name)
  if(NOT arg_LABELS)
    message(FATAL_ERROR "${name}: say LABELS, of ${XYLEM_TEST_KINDS}")
  endif()
  foreach(label IN LISTS arg_LABELS)
    if(NOT label IN_LIST XYLEM_TEST_KINDS)
      message(FATAL_ERROR "${name}: label ${label} is none of ${XYLEM_TEST_KINDS}")
    endif()
  endforeach()
endfunction()

# Reads arg_LABELS, arg_TIMEOUT, arg_SERIAL and arg_WAITS of the caller. Every test has a time limit, which is five
# times as long under a sanitizer.
#
# ctest runs tests in parallel while the sum of their PROCESSORS is at most its limit. A test counts as two, or as one
# if it WAITS: such a test mostly waits for time limits and uses less than half a core. The limit is twice the number
# of cores, plus one (tools/test), so one computing test for each core runs beside one that waits. A new build tree has
# no record of durations. Then the tests with the longest time limits start first, so that no long test runs alone at
# the end.
function(xylem_test_properties name)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(XYLEM_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  set(places 2)
  if(arg_WAITS)
    set(places 1)
  endif()
  set_tests_properties(${name} PROPERTIES
    PROCESSORS ${places} COST ${arg_TIMEOUT}
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL}
    ENVIRONMENT "${XYLEM_TEST_ENVIRONMENT}")
endfunction()

# xylem_test_library(NAME SOURCES … LINKS … [COMPUTES]): code that several tests share, compiled once.
function(xylem_test_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPUTES" "" "SOURCES;LINKS")
  add_library(${name} STATIC ${arg_SOURCES})
  xylem_target_defaults(${name})
  if(arg_COMPUTES)
    target_compile_options(${name} PRIVATE ${XYLEM_COMPUTING_TEST_OPTIONS})
  else()
    target_compile_options(${name} PRIVATE ${XYLEM_TEST_OPTIONS})
  endif()
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
endfunction()

# xylem_test_variant(NAME OF component SOURCES … DEFINES … LINKS …)
#
# Compiles sources of a component again, with definitions that only a test needs. clang-tidy checks them only as
# sources of the component. In the component they must be separate objects (xylem_separate), so that the linker leaves
# out exactly the objects that the variant replaces.
function(xylem_test_variant name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OF" "SOURCES;DEFINES;LINKS")
  foreach(source IN LISTS arg_SOURCES)
    get_source_file_property(separate "${source}" TARGET_DIRECTORY xylem_${arg_OF} SKIP_UNITY_BUILD_INCLUSION)
    if(NOT separate)
      message(FATAL_ERROR "xylem_test_variant(${name}): ${source} is not separate in xylem_${arg_OF} (xylem_separate)")
    endif()
  endforeach()
  add_library(${name} OBJECT ${arg_SOURCES})
  xylem_target_defaults(${name})
  set_target_properties(${name} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  target_compile_options(${name} PRIVATE ${XYLEM_COMPUTING_TEST_OPTIONS})
  target_compile_definitions(${name} PUBLIC ${arg_DEFINES})
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
endfunction()

# xylem_test(NAME SOURCES … LINKS … LABELS kind… [TIMEOUT seconds] [SHARDS n] [ARGS …] [SERIAL] [COMPUTES]
#            [THREADS] [WAITS])
#
# A GoogleTest executable NAME with GoogleTest's main and gmock. Its sources are compiled together (xylem_unite).
# Includes are relative to the repository ("runtime/src/groups/group.h") and to tests/. The options:
#   SERIAL    no other test runs at the same time
#   COMPUTES  the test's own code takes most of the time, for example by brute force, so it is optimised
#   THREADS   the test also runs under the thread sanitizer, which finds nothing in a single thread; a unit or model
#             test without this option ends with an error if it starts a thread (support/one_thread.cc)
#   WAITS     see xylem_test_properties
function(xylem_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;COMPUTES;THREADS;WAITS" "TIMEOUT;SHARDS" "SOURCES;LINKS;LABELS;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xylem_test(${name}): unexpected ${arg_UNPARSED_ARGUMENTS}")
  endif()
  xylem_check_labels(${name})
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()

  xylem_program(${name} SOURCES ${arg_SOURCES} LINKS ${arg_LINKS} GTest::gmock GTest::gtest_main)
  xylem_unite(${name})
  set(kind TEST)
  # In conformance tests, the ranks are threads of the test, and some tests measure how long a call takes.
  if(arg_COMPUTES OR (NOT XYLEM_SANITIZE AND "conformance" IN_LIST arg_LABELS))
    set(kind COMPUTING_TEST)
  endif()
  target_compile_options(${name} PRIVATE ${XYLEM_${kind}_OPTIONS})
  if(XYLEM_PRECOMPILE)
    string(TOLOWER "xylem_${kind}_headers" headers)
    target_precompile_headers(${name} REUSE_FROM ${headers})
  endif()
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(${name} PRIVATE
    XYLEM_TEST_DATA="${PROJECT_SOURCE_DIR}/tests" XYLEM_TEST_BIN="${PROJECT_BINARY_DIR}/bin")

  if(NOT arg_THREADS AND XYLEM_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT arg_THREADS AND NOT XYLEM_SANITIZE AND arg_LABELS MATCHES "unit|model")
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:one_thread>)
  endif()
  list(TRANSFORM arg_LABELS APPEND _tests OUTPUT_VARIABLE groups)
  foreach(group IN LISTS groups)
    add_dependencies(${group} ${name})
  endforeach()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(arg_SHARDS GREATER 1)
      set(test ${name}_${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name} ${arg_ARGS})
    xylem_test_properties(${test})
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
      GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${shard})
  endforeach()
endfunction()

# xylem_script_test(NAME COMMAND … LABELS kind… [TIMEOUT seconds] [SERIAL] [WAITS])
#
# A command as a test. To skip the test, it prints the line "[  SKIPPED ] NAME: reason" and exits with code 77.
function(xylem_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;WAITS" "TIMEOUT" "COMMAND;LABELS")
  xylem_check_labels(${name})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  xylem_test_properties(${name})
  set_property(TEST ${name} PROPERTY SKIP_RETURN_CODE 77)
endfunction()

# xylem_fuzz(NAME SOURCES … LINKS …)
#
# A fuzz target, which defines LLVMFuzzerTestOneInput. With XYLEM_FUZZ, libFuzzer explores for
# XYLEM_FUZZ_SECONDS with the seed XYLEM_FUZZ_SEED, so a new build tree tries the same inputs each time,
# up to the time limit. Otherwise, fuzz/replay.cc passes it the corpus tests/fuzz/corpus/NAME, and
# mutations of it with a fixed seed.
function(xylem_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "SOURCES;LINKS")
  set(arg_LABELS fuzz)
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  if(XYLEM_FUZZ)
    xylem_program(${name} SOURCES ${arg_SOURCES} LINKS ${arg_LINKS})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    # libFuzzer adds the inputs that it finds to the build tree, not to the corpus of the repository.
    set(found "${CMAKE_CURRENT_BINARY_DIR}/corpus/${name}")
    file(MAKE_DIRECTORY "${found}")
    add_test(NAME ${name} COMMAND ${name} -max_total_time=${XYLEM_FUZZ_SECONDS} -timeout=10
      -seed=${XYLEM_FUZZ_SEED} -print_final_stats=1 "${found}" "${corpus}")
    math(EXPR arg_TIMEOUT "${XYLEM_FUZZ_SECONDS} + 60")
  else()
    xylem_program(${name} SOURCES ${arg_SOURCES} LINKS fuzz_replay ${arg_LINKS})
    add_test(NAME ${name} COMMAND ${name} "${corpus}")
  endif()
  add_dependencies(fuzz_tests ${name})
  xylem_test_properties(${name})
endfunction()
