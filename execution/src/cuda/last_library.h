// SPDX-License-Identifier: Apache-2.0
//
// LastLibrary: finds the last library in the list of the dynamic loader.
#pragma once

#include <vector>

struct link_map;  // NOLINT(readability-identifier-naming)

namespace xylem::execution::cuda {

/// Holds references to libraries that were once the last of the list, so that their entries stay
/// readable. Only one thread at a time may use it.
class LastLibrary {
 public:
  LastLibrary() = default;
  LastLibrary(const LastLibrary&) = delete;
  LastLibrary& operator=(const LastLibrary&) = delete;
  ~LastLibrary();

  /// Takes a reference to the last library, and returns its entry in the list. Another thread may
  /// append a further library at the same time. Null if the library has been closed at the same
  /// time, if no reference can be taken, or if there is no memory.
  link_map* hold();

 private:
  std::vector<void*> held_;  ///< As dlopen() returns them.
};

}  // namespace xylem::execution::cuda
