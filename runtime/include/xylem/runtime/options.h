// SPDX-License-Identifier: Apache-2.0
//
// Options: what an application may set when it starts Xylem. Fields whose comment names an
// environment variable take precedence over this variable (docs/configuration.md).
#pragma once

#include "xylem/base/memory.h"
#include "xylem/runtime/store.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace xylem {

/// If a field is unset, its value comes from the environment; if the variable is unset, too, from
/// the launcher; and otherwise from the default. Fields can be set by name: `Runtime::create({.rank
/// = 0, .size = 1})`.
struct Options {
  std::optional<std::uint32_t> rank = std::nullopt;  ///< XYLEM_RANK
  std::optional<std::uint32_t> size = std::nullopt;  ///< XYLEM_SIZE
  /// XYLEM_RENDEZVOUS: "tcp://host:port" (IPv4, [IPv6] or a name; rank 0 serves), or
  /// "file:///shared/directory".
  std::optional<std::string> rendezvous = std::nullopt;
  /// A store of the user's own, used instead of `rendezvous`.
  std::shared_ptr<Store> store = nullptr;
  /// XYLEM_JOB: name that all ranks of one start share.
  std::optional<std::string> job = std::nullopt;
  /// XYLEM_SECRET: each rank must prove that it knows this text; otherwise the other ranks refuse
  /// it.
  std::optional<std::string> secret = std::nullopt;
  /// The secret to use if neither `secret` nor XYLEM_SECRET is set: one that the ranks share by
  /// other means, such as their launcher's store.
  std::optional<std::string> fallback_secret = std::nullopt;

  /// XYLEM_START_TIMEOUT, 60 s
  std::optional<std::chrono::milliseconds> start_timeout = std::nullopt;
  /// XYLEM_TIMEOUT, 30 min: time limit of each operation
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;

  /// XYLEM_TRANSPORT: auto, shm, tcp, ucx-rdma, ucx-tcp
  std::optional<std::string> transport = std::nullopt;
  /// XYLEM_REQUIRE: shm, tcp, rdma
  std::optional<std::string> require = std::nullopt;
  /// XYLEM_ALGORITHM: "ring" or "all_reduce=ring,all_gather=bruck"
  std::optional<std::string> algorithm = std::nullopt;
  /// XYLEM_INTERFACES: "eth0,ib0" or "^docker0"
  std::optional<std::string> interfaces = std::nullopt;
  /// XYLEM_DEVICES: "mlx5_0,mlx5_1" or "^mlx5_2"
  std::optional<std::string> devices = std::nullopt;
  std::optional<std::string> log = std::nullopt;  ///< XYLEM_LOG: level[,file=path]
  /// The device of this rank, which is bound to the world at the start (Communicator::bind()). Set
  /// it on all ranks, to host memory on ranks without a device, or on none.
  std::optional<Memory> device = std::nullopt;
  /// True if the ranks will pass buffers of the same kind of memory to each collective of the
  /// world. It then begins with Binding::same_memory (Communicator::bind()). Equal on all ranks.
  bool has_same_memory = false;
};

}  // namespace xylem
