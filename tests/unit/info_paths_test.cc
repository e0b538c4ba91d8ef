// SPDX-License-Identifier: Apache-2.0
//
// The text of `xylem info --paths`, for paths that are made up.
#include "info/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::tools {
namespace {

PathInfo path(std::uint32_t rank, const char* host, const char* transport, double rate) {
  PathInfo info;
  info.rank = rank;
  info.host = host;
  info.transport = transport;
  info.port = "eth0 1000 Mb/s";
  info.latency_us = 20;
  info.bandwidth_GBps = rate;
  info.is_measured = true;
  return info;
}

TEST(PathLines, AreOneForEachTransportAndRate) {
  std::vector<PathInfo> paths{path(0, "a", "shm", 5),      path(1, "a", "self", 0),
                              path(2, "b", "tcp", 0.1187), path(3, "b", "tcp", 0.11871),
                              path(4, "c", "tcp", 0.1187), path(5, "d", "tcp", 0.0119),
                              path(6, "e", "tcp", 0.1187), path(7, "f", "ucx-rdma", 12)};
  paths[7].is_measured = false;
  EXPECT_EQ(path_lines(1, paths),
            "rank 1 on a, eth0 1000 Mb/s\n"
            "  shm to 0: 20 us, 5 GB/s\n"
            "  tcp to 5: 20 us, 0.0119 GB/s\n"
            "  tcp to 2, 3, 4, 6: 20 us, 0.119 GB/s\n"
            "  ucx-rdma to 7: 20 us, 12 GB/s, assumed\n");
}

TEST(SlowHosts, AreNamedWithTheirRanks) {
  const std::vector<PathInfo> paths{path(0, "a", "tcp", 1), path(1, "b", "tcp", 1),
                                    path(2, "c", "tcp", 1), path(3, "c", "tcp", 1),
                                    path(4, "d", "tcp", 1), path(5, "e", "tcp", 1)};
  EXPECT_EQ(slow_hosts_text(std::vector<double>{1, 1, .1, .1, 1, .9}, paths),
            "slow: c (ranks 2, 3) sends 0.1 GB/s, most send 1\n");
  EXPECT_EQ(slow_hosts_text(std::vector<double>{1, 1, 1, 1, 1, 1}, paths), "");
  EXPECT_EQ(slow_hosts_text(std::vector<double>{0, 0, 0, 0, 0, 0}, paths), "") << "one host";
}

}  // namespace
}  // namespace xylem::tools
