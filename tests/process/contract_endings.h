// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace xylem::test {

/// Runs a rank whose program ends as `mode` says. Returns its exit status. If a result is wrong,
/// the process exits with status 9.
int test_ending(const std::string& mode);

}  // namespace xylem::test
