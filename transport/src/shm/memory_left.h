// SPDX-License-Identifier: Apache-2.0
//
// How much memory this process can still take before the kernel ends it: what the machine has left,
// and what each control group (version 1 or 2) of the process and above it allows.
#pragma once

#include <cstdint>
#include <string>

namespace xylem::transport::shm {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string
      limit;  ///< What bounds it, for people: "this machine", or the file of a control group.
};

/// Where the system tells it; tests bring their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

/// Where nothing is told, nothing bounds it.
MemoryLeft memory_left(const MemoryFiles& files = {});

}  // namespace xylem::transport::shm
