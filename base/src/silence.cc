// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/silence.h"

#include <fmt/format.h>

// The kernel's header, since glibc's <netinet/tcp.h> has a shorter tcp_info.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace xylem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The socket option TCP_RTO_MAX_MS, which older versions of <linux/tcp.h> do not define.
constexpr int kMostBetweenRepetitions = 44;
/// A packet that is sent at least this long after the last answer proves silence if the host does
/// not answer it (see silence.h).
constexpr milliseconds kUnanswered = Silence::kProbeInterval + Silence::kLongest;
/// The time allowed for an answer, in addition to the round-trip time that TCP expects.
constexpr milliseconds kPatience{500};

}  // namespace

void Silence::limit_probe_interval(int socket) noexcept {
  const int value = milliseconds(kProbeInterval).count();
  ::setsockopt(socket, IPPROTO_TCP, kMostBetweenRepetitions, &value, sizeof(value));
}

std::string Silence::text(milliseconds silent) {
  return fmt::format("its host has not answered for {} s",
                     std::chrono::floor<std::chrono::seconds>(silent).count());
}

std::optional<milliseconds> Silence::silent_for(int socket, Clock::time_point now) noexcept {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  // Received data counts as an answer, too: a peer that sends data, but receives nothing new, has
  // nothing to acknowledge.
  const milliseconds quiet(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
  if (quiet < kUnanswered) {
    *this = {};
    return std::nullopt;
  }
  // Whether the kernel has sent a packet so late that a missing answer proves silence. If bytes are
  // unacknowledged, the time of their last transmission decides. Otherwise the kernel sends only
  // probes (keepalive or zero-window), and one must have been sent since kUnanswered passed.
  const bool is_asked = info.tcpi_unacked > 0
                            ? quiet - milliseconds(info.tcpi_last_data_sent) >= kUnanswered
                            : has_passed_ && info.tcpi_probes > probes_;
  if (!has_passed_) probes_ = info.tcpi_probes;
  has_passed_ = true;
  if (!first_probe_ && is_asked) first_probe_ = now;
  // kPatience starts when this function first observes the transmission, not at the transmission,
  // since this host may have been suspended in between.
  const microseconds answer_time(info.tcpi_rtt + 4 * info.tcpi_rttvar);
  const bool is_over = first_probe_ && now - *first_probe_ >= kPatience + answer_time;
  return is_over ? std::optional(quiet) : std::nullopt;
}

}  // namespace xylem
