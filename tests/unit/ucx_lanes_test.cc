// SPDX-License-Identifier: Apache-2.0
//
// Parsing UCX's description of an endpoint.
#include "transport/src/ucx/lanes.h"

#include <gtest/gtest.h>

namespace xylem::transport::ucx {
namespace {

TEST(UcxLanes, AreReadInTheirOrder) {
  const auto lanes = parse_lanes(R"(#
# UCP endpoint 
#
#               peer: host:1234
#                 lane[0]:  7:rc_mlx5/mlx5_0:1.0 md[4]      -> md[4]/ib/sysdev[1] rma_bw#0 am am_bw#0
#                 lane[1]:  1:sysv/memory.0 md[1]           -> md[1]/sysv/sysdev[255] am am_bw#0 keepalive
#                 lane[2]: 12:tcp/eth0.100.3 md[1]          -> md[1]/tcp/sysdev[255] wireup
#
#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)
#
)");
  ASSERT_EQ(lanes.size(), 3U);
  EXPECT_EQ(lanes[0].transport, "rc_mlx5");
  EXPECT_EQ(lanes[0].device, "mlx5_0:1");
  EXPECT_EQ(lanes[1].transport, "sysv");
  EXPECT_EQ(lanes[1].device, "memory");
  EXPECT_EQ(lanes[2].transport, "tcp");
  EXPECT_EQ(lanes[2].device, "eth0.100");
}

TEST(UcxLanes, LinesThatAreNotLanesAreSkipped) {
  EXPECT_TRUE(parse_lanes("").empty());
  EXPECT_TRUE(parse_lanes("# UCP endpoint\n#   tag_send: 0..<egr/short>..93\n").empty());
  EXPECT_TRUE(parse_lanes("# lane[0]:  <none>\n").empty());
  EXPECT_TRUE(parse_lanes("# lane[0]:  1:cm rdmacm\n").empty());
  EXPECT_TRUE(parse_lanes("# lane[0]:  1:/eth0.0 md").empty());
  EXPECT_TRUE(parse_lanes("# lane[0]:  1:tcp/.0 md").empty());
  EXPECT_TRUE(parse_lanes("# lane[0]:  1:tcp/eth0").empty());
}

TEST(UcxLanes, LastLineNeedsNoNewline) {
  const auto lanes = parse_lanes("# lane[0]:  0:posix/memory.0 md[0]");
  ASSERT_EQ(lanes.size(), 1U);
  EXPECT_EQ(lanes[0].transport, "posix");
}

}  // namespace
}  // namespace xylem::transport::ucx
