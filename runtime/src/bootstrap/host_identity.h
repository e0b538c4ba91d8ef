// SPDX-License-Identifier: Apache-2.0
//
// HostIdentity: on which running kernel a process is, and which process it is there. Two processes
// whose `boot` is equal run on one kernel; where their `pid_space` is equal too, each can name the
// other.
#pragma once

#include "bootstrap/wire.h"

#include <cstdint>

namespace xylem::runtime {

struct HostIdentity {
  static constexpr std::size_t kWireBytes = 44;

  std::uint64_t boot_high = 0, boot_low = 0;  ///< The kernel's boot id; 0 if it cannot be read.
  std::uint64_t pid_space = 0;                ///< Inode of the process-id namespace; 0 if unknown.
  std::uint64_t net_space = 0;                ///< Inode of the network namespace; 0 if unknown.
  std::uint64_t started = 0;                  ///< When the process started, in ticks since boot.
  std::uint32_t pid = 0;                      ///< In its own namespace.

  static HostIdentity of_this_process();
  void write(WireWriter& writer) const;
  static HostIdentity read(WireReader& reader) noexcept;

  /// One kernel.
  bool same_host(const HostIdentity& other) const noexcept;
  /// Known to be on one kernel and in one network namespace: nothing between can break.
  bool same_network(const HostIdentity& other) const noexcept;
  /// Known to be on another kernel or in another network namespace: loopback addresses do not reach
  /// it.
  bool is_elsewhere(const HostIdentity& other) const noexcept;
  /// One kernel and one namespace of process ids.
  bool same_processes(const HostIdentity& other) const noexcept;
};

/// When a process of this host started, in ticks since boot; 0 if there is none. With the process
/// id, it names a process once and for all.
std::uint64_t start_ticks(std::uint32_t pid);

}  // namespace xylem::runtime
