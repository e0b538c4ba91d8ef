// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/silence.h"

// The kernel's own header: glibc's tcp_info ends before tcpi_bytes_acked.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace xylem {

bool Silence::is_too_long(int socket, Clock::time_point now) noexcept {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // Bytes in flight that nobody acknowledges, or a closed window about which nobody answers. A
  // stopped peer has its window closed and its kernel answers: each answer sets the number of
  // probes to 0.
  constexpr int kUnansweredProbes = 3;
  const bool is_silent = info.tcpi_probes >= kUnansweredProbes ||
                         (info.tcpi_unacked > 0 && info.tcpi_bytes_acked == acknowledged_);
  acknowledged_ = info.tcpi_bytes_acked;
  if (!is_silent) {
    since_ = Clock::time_point::max();
    return false;
  }
  since_ = std::min(since_, now);
  // Before there were bytes in flight, the kernel's probes were not answered either. But only what
  // we have seen for a while counts: this host, too, may have slept.
  constexpr auto kSeen = std::chrono::seconds(1);
  return now - since_ >= kSeen && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= kLongest;
}

}  // namespace xylem
