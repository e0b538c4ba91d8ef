// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/silence.h"

// The kernel's header is needed, since the tcp_info of glibc ends before tcpi_bytes_acked.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace xylem {

bool Silence::is_too_long(int socket, Clock::time_point now) noexcept {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // Either bytes are in flight and none is acknowledged, or the peer's window is closed and window
  // probes are not answered. A stopped process also has a closed window, but its kernel answers the
  // probes, and each answer resets the number of probes to 0.
  constexpr int kUnansweredProbes = 3;
  const bool is_silent = info.tcpi_probes >= kUnansweredProbes ||
                         (info.tcpi_unacked > 0 && info.tcpi_bytes_acked == acknowledged_);
  acknowledged_ = info.tcpi_bytes_acked;
  if (!is_silent) {
    since_ = Clock::time_point::max();
    return false;
  }
  since_ = std::min(since_, now);
  // tcpi_last_ack_recv also counts the time before there were bytes in flight, during which the
  // host left the kernel's probes unanswered. But the silence must have been seen from here for a
  // while, too, since this host may have been suspended.
  constexpr auto kSeen = std::chrono::seconds(1);
  return now - since_ >= kSeen && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= kLongest;
}

}  // namespace xylem
