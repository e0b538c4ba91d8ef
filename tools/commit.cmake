# SPDX-License-Identifier: Apache-2.0
#
# Writes HEADER with the commit that is checked out in SOURCE, followed by "-dirty" if files are modified, or
# with an empty text outside of a repository. An up-to-date header is not touched, which avoids recompiling.
execute_process(
  COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE outcome)
if(NOT outcome EQUAL 0)
  set(commit "")
endif()
file(CONFIGURE OUTPUT "${HEADER}" @ONLY CONTENT [[
// The commit that this is built from.
#pragma once

namespace xylem::tools {

inline constexpr char kCommit[] = "@commit@";

}  // namespace xylem::tools
]])
