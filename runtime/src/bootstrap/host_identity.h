// SPDX-License-Identifier: Apache-2.0
//
// HostIdentity: identifies a process, and the running kernel on which it is. Two processes with
// equal boot ids run on one kernel. If their `pid_space` is equal, too, each can address the other
// by its process id.
#pragma once

#include "bootstrap/wire_format.h"

#include <cstdint>

namespace xylem::runtime {

struct HostIdentity {
  static constexpr std::size_t kWireBytes = 44;

  std::uint64_t boot_high = 0, boot_low = 0;  ///< The kernel's boot id; 0 if it cannot be read.
  std::uint64_t pid_space = 0;                ///< Inode of the process-id namespace; 0 if unknown.
  std::uint64_t net_space = 0;                ///< Inode of the network namespace; 0 if unknown.
  std::uint64_t started = 0;                  ///< When the process started, in ticks since boot.
  std::uint32_t pid = 0;                      ///< Process id in its own PID namespace.

  static HostIdentity of_this_process();
  void write(WireWriter& writer) const;
  static HostIdentity read(WireReader& reader) noexcept;

  /// True if both processes are known to run on one kernel.
  bool same_host(const HostIdentity& other) const noexcept;
  /// True if both processes are known to be on one kernel and in one network namespace, so that no
  /// network between them can fail.
  bool same_network(const HostIdentity& other) const noexcept;
  /// True if the two processes are known to be on different kernels or in different network
  /// namespaces, so that loopback addresses of one do not reach the other.
  bool is_elsewhere(const HostIdentity& other) const noexcept;
  /// True if both processes are known to be on one kernel and in one PID namespace.
  bool same_processes(const HostIdentity& other) const noexcept;
};

/// When the process `pid` of this host started, in ticks since boot; 0 if there is no such process.
/// Together with the process id, it identifies a process of this host uniquely until the next boot.
std::uint64_t start_ticks(std::uint32_t pid);

}  // namespace xylem::runtime
