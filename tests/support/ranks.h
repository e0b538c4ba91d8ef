// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process, over loopback, shared memory, TCP or UCX: the body runs once per
// rank with that rank's Runtime.
#pragma once

#include "runtime/src/compute_devices.h"
#include "runtime/src/config/config.h"
#include "support/memory_control.h"
#include "xylem/xylem.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::test {

struct RankOptions {
  std::uint32_t size = 2;
  std::string transport = "loopback";  ///< "loopback", "shm", "tcp", "ucx-tcp".
  std::uint64_t seed = 0;              ///< Of loopback's permutations.
  std::uint64_t eager_bytes = 8192;    ///< Of loopback.
  std::vector<std::uint32_t> hosts{};  ///< Of each rank; by itself all share one.
  /// A rank that cannot make its host wire, over loopback.
  std::optional<std::uint32_t> without_host_wire{};
  /// Over shm: as though all cores were far from each other.
  bool past_cache = false;
  /// What BufferAllocator gives to the rank's thread is of xylem::allocate().
  bool allocates_buffers = false;
  /// What each rank computes on besides the CPU.
  std::function<std::vector<runtime::ComputeDevice>(std::uint32_t rank)> devices = nullptr;
  runtime::Environment environment{};  ///< XYLEM_ variables.
  /// Variables of single ranks, over those of all.
  std::function<void(std::uint32_t rank, runtime::Environment&)> adjust = nullptr;
};

/// Starts `options.size` ranks, runs `body` on each and waits for all. A rank that cannot start is
/// a test failure, unless `on_start_error` takes it.
void run_ranks(
    const RankOptions& options,
    const std::function<void(Runtime&, MemoryHub&)>& body,
    const std::function<void(std::uint32_t rank, const Status&)>& on_start_error = nullptr);

}  // namespace xylem::test
