# SPDX-License-Identifier: Apache-2.0
#
# How a target of Xylem is made: one function per kind, so that standard, warnings, visibility and
# sanitizers are the same everywhere and no flag is global.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(XYLEM_CCACHE ccache DOC "Compiler cache, used where it is installed")
  if(XYLEM_CCACHE)
    # ccache wants to be told that precompiled headers are compared by what they hold, and that generated headers
    # are the same in every build tree.
    set(CMAKE_C_COMPILER_LAUNCHER "${XYLEM_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros "CCACHE_BASEDIR=${PROJECT_BINARY_DIR}" "${XYLEM_CCACHE}")
  endif()
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

# Standard, warnings, visibility and sanitizers of one target.
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
    # Paths in messages are the repository's, not those of the machine that compiled.
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 warns of overlaps inside of std::string's operator+ (its bug 105651) and, with sanitizers, of
    # uninitialised members inside of std::function.
    target_compile_options(${target} PRIVATE
      -Wno-restrict $<$<BOOL:${XYLEM_SANITIZE}>:-Wno-maybe-uninitialized>)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Locks are checked (base/mutex.h). libstdc++ 12's std::stable_sort uses what it declares deprecated.
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

# The headers that most sources include. Clang reads them in a third of the time that it takes to compile a source.
set(XYLEM_COMMON_HEADERS
  <algorithm> <array> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional> <set> <span>
  <string> <string_view> <system_error> <utility> <variant> <vector> <fmt/format.h>)

# xylem_precompile(TARGET HEADER…): precompiles headers for the sources of a target, if XYLEM_PRECOMPILE is on.
function(xylem_precompile target)
  if(XYLEM_PRECOMPILE)
    # Without times of files in it, a precompiled header is the same in each build, which ccache needs.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# xylem_precompile_common(TARGET)
#
# For Clang only. GCC gains little by it. And GCC's objects of the release build and of the wheels for torch are
# the same, so that ccache finds them again, as long as no precompiled header's path in the build tree is part of
# them.
function(xylem_precompile_common target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    xylem_precompile(${target} ${XYLEM_COMMON_HEADERS})
  endif()
endfunction()

# xylem_unite(TARGET): compiles the sources of a target several at a time, if XYLEM_UNITY is on. Headers, and what
# templates make of them, are then compiled once for all of them. Sources that cannot be together, since each has the
# same names for its own, are separate (xylem_separate).
function(xylem_unite target)
  if(XYLEM_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  endif()
endfunction()

# xylem_separate(SOURCE…): sources of this folder that stay objects of their own, whatever xylem_unite says.
function(xylem_separate)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# xylem_optimise_little(TARGET): for code that is not part of an operation. Where release builds are compiled with -O2,
# as by our presets and by pip, -O1 saves a quarter of the time that this takes. GCC then takes the value of an empty
# std::optional for uninitialized.
function(xylem_optimise_little target)
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O2")
    target_compile_options(${target} PRIVATE
      $<$<CONFIG:Release>:-O1> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# xylem_component(NAME SOURCES … HEADERS … [DEPENDS …] [PRIVATE_DEPENDS …])
#
# A layer: the static library xylem_NAME, alias xylem::NAME. HEADERS are its public headers, under
# include/. DEPENDS are targets that its public headers name, PRIVATE_DEPENDS those of its sources only.
# Tests and tools link components; users link xylem::xylem, which is made of them.
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
    # libFuzzer follows the branches of what it drives.
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
    # Of a C program, too: the sanitizers of the library need their runtime for C++.
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endfunction()
