// SPDX-License-Identifier: Apache-2.0
//
// Makes and removes the directory in which ranks find each other.
#include "run/private_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace xylem::tools {

Result<PrivateDirectory> PrivateDirectory::create() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) {
    return failure(Code::invalid_argument,
                   fmt::format("there is no directory for temporary files ({}): set TMPDIR to one",
                               error.message()));
  }
  // mkdtemp makes the directory with mode 0700, and fails if the name exists.
  std::string path = (parent / "xylem-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    return failure(Code::exhausted,
                   fmt::format("cannot make a directory in {}: {}; TMPDIR may name another place",
                               parent.string(), std::generic_category().message(errno)));
  }
  return PrivateDirectory(std::filesystem::path(path));
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code
      ignored;  // a destructor cannot report an error, and this is only a temporary directory
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace xylem::tools
