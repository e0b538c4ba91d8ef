# SPDX-License-Identifier: Apache-2.0
#
# Writes HEADER with the commit that SOURCE stands at, "-dirty" if files differ from it; empty outside of a
# repository. Leaves a header that is right alone, so that nothing is compiled again.
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
