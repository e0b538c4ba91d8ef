# SPDX-License-Identifier: Apache-2.0
#
# Functions that make the targets of Xylem, one for each kind of target. They set language standard,
# warnings, visibility and sanitizers for each target, so that no flag is global.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(XYLEM_CCACHE ccache DOC "Compiler cache, used where it is installed")
  if(XYLEM_CCACHE)
    # Without this sloppiness, ccache does not cache sources that use precompiled headers. With the base directory,
    # generated headers have the same path in every build tree.
    set(CMAKE_C_COMPILER_LAUNCHER "${XYLEM_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros "CCACHE_BASEDIR=${PROJECT_BINARY_DIR}" "${XYLEM_CCACHE}")
  endif()
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

# Sets language standard, warnings, visibility and sanitizers of one target.
function(xylem_target_defaults target)
  target_compile_features(${target} PRIVATE cxx_std_20 c_std_11)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    C_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${XYLEM_WERROR}>:-Werror>
    # Messages contain paths relative to the repository.
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 warns without reason of overlaps in std::string's operator+ (its bug 105651) and, with sanitizers, of
    # uninitialised members in std::function.
    target_compile_options(${target} PRIVATE
      -Wno-restrict $<$<BOOL:${XYLEM_SANITIZE}>:-Wno-maybe-uninitialized>)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Locks are checked (base/mutex.h). std::stable_sort of libstdc++ 12 uses a function that is declared deprecated.
    target_compile_options(${target} PRIVATE -Wthread-safety -Wno-deprecated-declarations)
  endif()
  if(XYLEM_SANITIZE)
    list(JOIN XYLEM_SANITIZE "," sanitizers)
    set(flags -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_compile_options(${target} PRIVATE ${flags})
    target_link_options(${target} PRIVATE ${flags})
  endif()
  if(XYLEM_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# The headers that most sources include. Clang spends a third of the time to compile a source on them.
set(XYLEM_COMMON_HEADERS
  <algorithm> <array> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional> <set> <span>
  <string> <string_view> <system_error> <utility> <variant> <vector> <fmt/format.h>)

# xylem_precompile(TARGET HEADER…): precompiles headers for the sources of a target, if XYLEM_PRECOMPILE is on.
function(xylem_precompile target)
  if(XYLEM_PRECOMPILE)
    # Without timestamps, a precompiled header is the same in each build, so ccache can recognize it.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# xylem_precompile_common(TARGET)
#
# Precompiles XYLEM_COMMON_HEADERS, for Clang only. With GCC this saves little time. Also, the wheels for torch use
# GCC's objects of the release build through ccache. So these objects must not depend on the path of a precompiled
# header, which differs between build trees.
function(xylem_precompile_common target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    xylem_precompile(${target} ${XYLEM_COMMON_HEADERS})
  endif()
endfunction()

# xylem_unite(TARGET): compiles several sources of a target as one, if XYLEM_UNITY is on. Headers and templates are then
# compiled once for all of them. Sources that define the same names cannot be united: xylem_separate() excludes them.
function(xylem_unite target)
  if(XYLEM_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  endif()
endfunction()

# xylem_separate(SOURCE…): compiles sources of this folder separately, in spite of xylem_unite().
function(xylem_separate)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# xylem_optimise_little(TARGET): for code that does not run during an operation. Release builds of our presets and of
# pip use -O2; -O1 saves a quarter of the time to compile. With -O1, GCC warns without reason that the value of an empty
# std::optional is uninitialized.
function(xylem_optimise_little target)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O2")
    target_compile_options(${target} PRIVATE
      $<$<CONFIG:Release>:-O1> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# xylem_component(NAME SOURCES … HEADERS … [DEPENDS …] [PRIVATE_DEPENDS …])
#
# A component: the static library xylem_NAME, alias xylem::NAME. HEADERS are its public headers, under
# include/. DEPENDS are the targets that its public headers use, and PRIVATE_DEPENDS those that only its
# sources use. Tests and tools link components; users link xylem::xylem, which contains all of them.
function(xylem_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "xylem_component(${name}): unexpected ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target xylem_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(xylem::${name} ALIAS ${target})
  xylem_target_defaults(${target})
  xylem_precompile_common(${target})
  xylem_unite(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  target_include_directories(${target} PRIVATE src)
  if(XYLEM_FUZZ)
    # libFuzzer chooses inputs by the branches that run, so the code reports them.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  set_property(GLOBAL APPEND PROPERTY XYLEM_COMPONENTS ${name})
endfunction()

# xylem_program(NAME SOURCES … LINKS …): an executable in bin/.
function(xylem_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  xylem_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINKS})
  if(XYLEM_SANITIZE)
    # Also for a program in C: the library is C++, and needs the sanitizer's runtime for C++.
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endfunction()
