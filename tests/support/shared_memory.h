// SPDX-License-Identifier: Apache-2.0
//
// The names of the POSIX shared memory objects on this machine.
#pragma once

#include "xylem/base/clock.h"

#include <sched.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>

namespace xylem::test {

inline std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

/// Returns the names that are not in `before` and that still exist after 20 s. Other processes of
/// the machine may create names too, but they remove them within this time.
inline std::set<std::string> left_in_shared_memory(const std::set<std::string>& before) {
  std::set<std::string> left;
  const auto deadline = Deadline::after(std::chrono::seconds(20));
  for (const std::string& name : shared_memory_names()) {
    if (before.contains(name)) continue;
    while (!deadline.passed() && shared_memory_names().contains(name)) ::sched_yield();
    if (shared_memory_names().contains(name)) left.insert(name);
  }
  return left;
}

}  // namespace xylem::test
