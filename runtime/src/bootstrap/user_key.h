// SPDX-License-Identifier: Apache-2.0
//
// The user's key: random bytes in a file that only its user can read, made when first needed. Ranks
// that meet on one host and were given no secret use it to prove that they belong to one user.
#pragma once

#include "xylem/base/status.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// The folder of the key: .local/state/xylem in the home of this process's user, as the system's
/// user database gives it; /tmp/xylem-<user> if that folder cannot be written.
std::filesystem::path user_key_folder();

/// The secret that `job` has among this user's processes. Fails with invalid_argument if the file
/// in `folder` does not belong to this user alone, and with exhausted if it can be neither read nor
/// made.
Result<std::string> secret_of_user(const std::filesystem::path& folder, std::string_view job);

}  // namespace xylem::runtime
