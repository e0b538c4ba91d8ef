// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process, over loopback, shared memory, TCP or UCX. Each rank has a
// Runtime, with which it runs the body of the test once.
#pragma once

#include "runtime/src/config/config.h"
#include "runtime/src/wires/compute_devices.h"
#include "runtime/src/wires/transports.h"
#include "support/memory_control.h"
#include "xylem/xylem.h"

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::test {

struct RankOptions {
  std::uint32_t size = 2;
  std::string transport = "loopback";  ///< "auto", "loopback", "shm", "tcp" or "ucx-tcp".
  std::uint64_t seed = 0;              ///< Seed of loopback's message order.
  std::uint64_t eager_bytes = 8192;    ///< Largest message that loopback buffers.
  std::vector<std::uint32_t> hosts{};  ///< Host of each rank; if empty, all ranks share one host.
  /// The rank whose transport within the host cannot be created. Only for loopback.
  std::optional<std::uint32_t> without_host_wire{};
  /// Only for shm: senders write all slots with non-temporal stores, as ranks do whose cores share
  /// no cache.
  bool non_temporal = false;
  /// On the ranks' threads, BufferAllocator takes memory from xylem::allocate().
  bool allocates_buffers = false;
  /// Returns the devices of a rank, besides the CPU. If it is empty, ranks use the devices of the
  /// machine.
  std::function<std::vector<runtime::ComputeDevice>(std::uint32_t rank)> devices = nullptr;
  /// Options::device of a rank; it is not set on a rank for which this returns nothing.
  std::function<std::optional<Memory>(std::uint32_t rank)> device = nullptr;
  /// Changes the list of transports that a rank may use.
  std::function<void(std::uint32_t rank, std::vector<runtime::WireKind>&)> adjust_wires = nullptr;
  runtime::Environment environment{};  ///< XYLEM_ variables of all ranks.
  /// Changes the variables of one rank, after those of all ranks have been set.
  std::function<void(std::uint32_t rank, runtime::Environment&)> adjust = nullptr;
};

/// A buffer of one element.
inline ConstBuffer one(const std::int64_t& value) { return {&value, 1, DataType::int64}; }
inline Buffer into(std::int64_t& value) { return {&value, 1, DataType::int64}; }

/// Starts `options.size` ranks, runs `body` on each, and waits for all of them. If a rank cannot
/// start, `on_start_error` is called; without `on_start_error`, the test fails.
void run_ranks(
    const RankOptions& options,
    const std::function<void(Runtime&, MemoryHub&)>& body,
    const std::function<void(std::uint32_t rank, const Status&)>& on_start_error = nullptr);

/// Like the function above, for a body that needs only the world communicator.
template <std::invocable<Communicator> Body>
void run_ranks(const RankOptions& options, const Body& body) {
  run_ranks(options, [&body](Runtime& runtime, MemoryHub&) { body(runtime.world()); });
}

}  // namespace xylem::test
