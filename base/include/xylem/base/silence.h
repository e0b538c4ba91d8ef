// SPDX-License-Identifier: Apache-2.0
//
// Silence: detects that the host at the other end of a TCP connection does not answer. A host
// without power, or behind a failed network, is silent. A host whose process is stopped is not,
// since its kernel still acknowledges data.
//
// A missing answer alone proves nothing, for two reasons. First, TCP retransmits at growing
// intervals, so after the network has recovered, the local kernel may send nothing for seconds.
// Second, the last answer may have arrived up to kProbeInterval before the network failed. So a
// host counts as silent only if it does not answer a packet that the local kernel sent more than
// kProbeInterval + kLongest after the host's last answer:
//
//   last answer │← kProbeInterval →│← kLongest →│ the kernel sends a packet ── no answer ──► silent
#pragma once

#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace xylem {

/// Observes one connection. Call silent_for() a few times a second. Not thread-safe.
class Silence {
 public:
  /// A network failure of up to this duration has no consequences.
  static constexpr std::chrono::seconds kLongest{5};
  /// The longest interval between retransmissions to a host that does not answer (see
  /// limit_probe_interval()).
  static constexpr std::chrono::seconds kProbeInterval{1};

  /// Makes the kernel retransmit unacknowledged data at least once per kProbeInterval, from
  /// Linux 6.15 on. Older kernels ignore the request and double the interval with each
  /// retransmission.
  static void limit_probe_interval(int socket) noexcept;

  /// The text of errors, such as "its host has not answered for 6 s".
  static std::string text(std::chrono::milliseconds silent);

  /// If the host counts as silent, returns the time since its last answer; otherwise nullopt.
  /// `socket` is a connected TCP socket.
  std::optional<std::chrono::milliseconds> silent_for(int socket, Clock::time_point now) noexcept;

 private:
  /// When silent_for() first observed that the kernel had sent a packet whose missing answer would
  /// prove silence.
  std::optional<Clock::time_point> first_probe_;
  /// The number of unanswered probes at the time when has_passed_ became true.
  std::uint8_t probes_ = 0;
  /// Whether kProbeInterval + kLongest have passed since the last answer.
  bool has_passed_ = false;
};

}  // namespace xylem
