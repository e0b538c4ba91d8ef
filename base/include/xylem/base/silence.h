// SPDX-License-Identifier: Apache-2.0
//
// Silence: detects that the host at the other end of a TCP connection no longer answers. A stopped
// process is not silent, since its kernel still acknowledges data. A host without power, or behind
// a failed network, is.
//
// A missing answer alone proves nothing, for two reasons. TCP retransmits less and less often, so a
// network that works again may carry nothing to answer for seconds. And the host's last answer may
// have come up to kAsks before the network failed. So a host counts as silent only if it does not
// answer something that the kernel sent more than kAsks + kLongest after the host's last answer:
//
//   last answer │← kAsks →│← kLongest, without any answer →│── the kernel asks ── patience ──►
//   silent
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
  /// How often the kernel asks a host that does not answer (ask_often()).
  static constexpr std::chrono::seconds kAsks{1};

  /// Makes the kernel repeat what is not acknowledged at least once in kAsks, where it can (Linux
  /// 6.15). Elsewhere the time between two attempts doubles.
  static void ask_often(int socket) noexcept;

  /// "its host has not answered for 6 s"
  static std::string text(std::chrono::milliseconds silent);

  /// How long the host has not answered, if that is too long. `socket` is a connected TCP socket.
  std::optional<std::chrono::milliseconds> too_long(int socket, Clock::time_point now) noexcept;

 private:
  std::optional<Clock::time_point> asked_;  ///< When the kernel was seen to ask in vain.
  std::uint8_t probes_ = 0;  ///< Unanswered probes when the time without an answer had passed.
  bool has_passed_ = false;  ///< Whether it has passed.
};

}  // namespace xylem
