// SPDX-License-Identifier: Apache-2.0
//
// Silence: detects that the host at the other end of a TCP connection no longer answers. A stopped
// process is not silent, since its kernel still acknowledges data. A host without power, or behind
// a failed network, is.
//
// A missing answer alone proves nothing, for two reasons. TCP retransmits less and less often, so a
// network that works again may carry nothing to answer for seconds. And the host's last answer may
// have come up to kProbeInterval before the network failed. So a host counts as silent only if it
// does not answer something that the kernel sent more than kProbeInterval + kLongest after the
// host's last answer:
//
//   last answer │← kProbeInterval →│← kLongest, without any answer →│── the kernel asks ── patience
//   ──► silent
#pragma once

#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace xylem {

/// Observes one connection; call it a few times a second. Not thread-safe.
class Silence {
 public:
  /// The network may be silent for this long without consequences.
  static constexpr std::chrono::seconds kLongest{5};
  /// The interval at which the kernel retransmits to a host that does not answer
  /// (limit_probe_interval()).
  static constexpr std::chrono::seconds kProbeInterval{1};

  /// Makes the kernel retransmit unacknowledged data at least once per kProbeInterval, from
  /// Linux 6.15 on. Older kernels double the time between two attempts.
  static void limit_probe_interval(int socket) noexcept;

  /// "its host has not answered for 6 s"
  static std::string text(std::chrono::milliseconds silent);

  /// Returns how long the host has not answered if that is too long, and otherwise nothing.
  /// `socket` is a connected TCP socket.
  std::optional<std::chrono::milliseconds> silent_for(int socket, Clock::time_point now) noexcept;

 private:
  /// When silent_for() first saw that the kernel had sent something that the host should answer.
  std::optional<Clock::time_point> first_probe_;
  /// Unanswered probes when has_passed_ became true.
  std::uint8_t probes_ = 0;
  /// Whether kProbeInterval + kLongest have passed since the last answer.
  bool has_passed_ = false;
};

}  // namespace xylem
