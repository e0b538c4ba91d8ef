# SPDX-License-Identifier: Apache-2.0
#
# Targets that check the sources: format, format_check, tidy. The first two check all C and C++
# files that git does not ignore; tidy checks all sources of the build.

find_program(XYLEM_CLANG_FORMAT NAMES clang-format-14 DOC "clang-format 14")
# tools/setup installs clang-tidy there.
set(clang_tidy_programs "${PROJECT_SOURCE_DIR}/build/clang-tidy/bin")
find_program(XYLEM_CLANG_TIDY_RUNNER NAMES run-clang-tidy.py PATHS "${clang_tidy_programs}" NO_DEFAULT_PATH
  DOC "run-clang-tidy of clang-tidy 23")

function(xylem_check_target name program what)
  if(program)
    add_custom_target(${name} COMMAND ${ARGN}
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" USES_TERMINAL VERBATIM)
  else()
    add_custom_target(${name} COMMAND ${CMAKE_COMMAND} -E echo "${what} is missing: run tools/setup --all"
      COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  endif()
endfunction()

set(list_sources "git ls-files -z --cached --others --exclude-standard -- '*.cc' '*.h' '*.c' '*.cu'")
xylem_check_target(format "${XYLEM_CLANG_FORMAT}" "clang-format 14"
  sh -c "${list_sources} | xargs -0 ${XYLEM_CLANG_FORMAT} -i")
xylem_check_target(format_check "${XYLEM_CLANG_FORMAT}" "clang-format 14"
  sh -c "${list_sources} | xargs -0 ${XYLEM_CLANG_FORMAT} -n --Werror")
# Headers are checked with the sources that include them. Generated files are left out.
set(XYLEM_TIDY_SOURCES "^${PROJECT_SOURCE_DIR}/(?!build/).*\\.cc$" CACHE STRING
  "Regular expression for the paths of the sources that the target tidy reads")
# The limit on the analyzer's nodes keeps a run of the whole tree within the time that CI allows.
xylem_check_target(tidy "${XYLEM_CLANG_TIDY_RUNNER}" "clang-tidy 23"
  "${XYLEM_CLANG_TIDY_RUNNER}" -clang-tidy-binary "${clang_tidy_programs}/clang-tidy" -quiet -p "${PROJECT_BINARY_DIR}"
  -extra-arg=-Xclang -extra-arg=-analyzer-config -extra-arg=-Xclang -extra-arg=max-nodes=5000
  "${XYLEM_TIDY_SOURCES}")
if(TARGET xylem_commit)
  add_dependencies(tidy xylem_commit)  # Sources include commit.h, which this target makes.
endif()
