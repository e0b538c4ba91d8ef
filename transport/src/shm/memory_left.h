// SPDX-License-Identifier: Apache-2.0
//
// How much memory this process can allocate before the kernel kills it: what the machine has
// available, and what the process's control group (version 1 or 2) and all groups above it allow.
#pragma once

#include <cstdint>
#include <string>

namespace xylem::transport::shm {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string
      limit;  ///< What sets the limit, as text: "this machine", or the file of a control group.
};

/// Where the system reports memory. Tests pass their own files.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

/// The memory that is left. If the system reports no limit, `bytes` is the largest number.
MemoryLeft memory_left(const MemoryFiles& files = {});

}  // namespace xylem::transport::shm
