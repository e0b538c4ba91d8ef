// SPDX-License-Identifier: Apache-2.0
//
// The user's key: random bytes in a file that only its user can read, made when it is first needed.
// Ranks that meet on one host and were given no secret prove that they are of one user by it.
#pragma once

#include "xylem/base/status.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// The folder of the key: .local/state/xylem in the home of this process's user, as the system's
/// user database has it; where that cannot be written, /tmp/xylem-<user>.
std::filesystem::path user_key_folder();

/// The secret of `job` among this user's processes. Codes: invalid_argument, the file in `folder`
/// is not this user's alone; exhausted, it can be neither read nor made.
Result<std::string> secret_of_user(const std::filesystem::path& folder, std::string_view job);

}  // namespace xylem::runtime
