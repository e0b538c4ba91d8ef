// SPDX-License-Identifier: Apache-2.0
//
// The last library in the list of the dynamic loader.
#pragma once

#include <vector>

struct link_map;  // NOLINT(readability-identifier-naming)

namespace xylem::execution::cuda {

/// Keeps references to libraries that were once the last of the list, so that their entries stay
/// readable. For one thread at a time.
class LastLibrary {
 public:
  LastLibrary() = default;
  LastLibrary(const LastLibrary&) = delete;
  LastLibrary& operator=(const LastLibrary&) = delete;
  ~LastLibrary();

  /// The entry of the library that is the last one now, or was a moment ago. Null if it was closed
  /// meanwhile, or cannot be referred to, or if there is no memory.
  link_map* hold();

 private:
  std::vector<void*> held_;  ///< As dlopen() returns them.
};

}  // namespace xylem::execution::cuda
