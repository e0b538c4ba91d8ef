// SPDX-License-Identifier: Apache-2.0
//
// The user's key: random bytes in a file that only one user can read, made when first needed. If
// all ranks are on one host and no secret is set, ranks use the key to prove that they belong to
// the same user.
#pragma once

#include "xylem/base/status.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

/// Directories in which the key may be. All ranks of a start must find the same key, so neither
/// environment variables nor anything that another user can change affects which directory is
/// chosen.
struct KeyPlaces {
  std::optional<std::filesystem::path> home;  ///< The home in the system's user database.
  std::filesystem::path runtime;              ///< /run/user/<user>, made by the system at login.
  std::filesystem::path temporary;            ///< /tmp, where anybody can make a folder first.

  static KeyPlaces of_this_user();
};

/// The folder of the key: .local/state/xylem in the home, if this user can write it; otherwise
/// xylem in `runtime`, if that is a directory of this user that others cannot write; otherwise
/// xylem-<user> in `temporary`.
std::filesystem::path user_key_folder(const KeyPlaces& places = KeyPlaces::of_this_user());

/// The secret of `job`, derived from the key in `folder`: only processes of this user can derive
/// it. Fails with invalid_argument if `folder` does not belong to this user, or if another user can
/// access the key file. Fails with exhausted if the file can be neither read nor made.
Result<std::string> secret_of_user(const std::filesystem::path& folder, std::string_view job);

}  // namespace xylem::runtime
