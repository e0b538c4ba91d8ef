// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace xylem::test {

/// Runs a rank whose program ends in this way. Returns its exit status. Wrong results end the
/// process with status 9.
int test_ending(const std::string& mode);

}  // namespace xylem::test
