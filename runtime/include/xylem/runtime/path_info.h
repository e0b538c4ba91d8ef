// SPDX-License-Identifier: Apache-2.0
//
// PathInfo: how one rank of a job reaches another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xylem {

/// How this rank reaches another.
struct PathInfo {
  std::uint32_t rank = 0;          ///< World rank of the other rank.
  std::string host;                ///< Name of the other rank's host.
  bool is_within_host = false;     ///< Whether the other rank is on the host of this rank.
  std::string transport;           ///< "shm", "tcp", "ucx-tcp", "ucx-rdma", "loopback"; "self".
  std::vector<std::string> lanes;  ///< Transport and device of each lane in use, as "shm/memory" or
                                   ///< "tcp/eth0"; empty before the first message.
  std::uint64_t bytes_sent = 0;
  /// The interface that the other rank uses between hosts, as "eth0, MTU 1500, 10.1.0.0/24"; empty
  /// if it is unknown.
  std::string port;
  /// What plans are chosen with: the time of an empty message to the other rank, and the rate of a
  /// stream of messages, in 10^9 bytes per second. 0 for this rank itself.
  double latency_us = 0, bandwidth_GBps = 0;
  /// Whether the latency and the bandwidth were measured at the start of this job or of an earlier
  /// one (XYLEM_TUNING). If not, they are assumed.
  bool is_measured = false;
};

}  // namespace xylem
