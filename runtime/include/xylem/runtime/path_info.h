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
  std::string transport;           ///< "shm", "tcp", "ucx-tcp", "ucx-rdma", "loopback"; "self".
  std::vector<std::string> lanes;  ///< Transport and device of each lane in use, as "shm/memory" or
                                   ///< "tcp/eth0"; empty before the first message.
  std::uint64_t bytes_sent = 0;
};

}  // namespace xylem
