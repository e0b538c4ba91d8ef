// SPDX-License-Identifier: Apache-2.0
//
// The sizes of a call's buffers, and the source of each part of a right result.
#include "tools/src/bench/geometry.h"

#include <gtest/gtest.h>

namespace xylem::tools {
namespace {

GeometryQuery query(Operation operation,
                    std::uint64_t bytes,
                    std::uint32_t rank,
                    std::uint32_t ranks,
                    std::uint32_t root = 0) {
  return {operation, {bytes}, 4, rank, ranks, root};
}

TEST(Geometry, SizeOfAllGatherIsTheWholeOutput) {
  const auto made = geometry(query(Operation::all_gather, 64, 1, 4));
  EXPECT_EQ(made.size, Bytes{64});
  EXPECT_EQ(made.count, 4U);
  EXPECT_EQ(made.input, 4U);
  EXPECT_EQ(made.output, 16U);
  EXPECT_EQ(made.in_place_at, 4U);
}

TEST(Geometry, SizeOfReduceScatterIsTheWholeInput) {
  const auto made = geometry(query(Operation::reduce_scatter, 64, 3, 4));
  EXPECT_EQ(made.input, 16U);
  EXPECT_EQ(made.output, 4U);
  EXPECT_EQ(made.result, (std::vector<Region>{{0, 4, std::nullopt, 12}}));
}

TEST(Geometry, RoundsDownToEqualPartsButNeverToNothing) {
  EXPECT_EQ(geometry(query(Operation::all_gather, 63, 0, 4)).size, Bytes{48});
  EXPECT_EQ(geometry(query(Operation::all_gather, 1, 0, 4)).size, Bytes{16});
  EXPECT_EQ(geometry(query(Operation::all_reduce, 1, 0, 4)).size, Bytes{4});
}

TEST(Geometry, OnlyTheRootOfAReduceHasAResult) {
  EXPECT_TRUE(geometry(query(Operation::reduce, 64, 0, 4, 2)).result.empty());
  EXPECT_EQ(geometry(query(Operation::reduce, 64, 2, 4, 2)).result.size(), 1U);
}

TEST(Geometry, OnlyTheRootOfAScatterHasAnInputAndOfAGatherAnOutput) {
  EXPECT_EQ(geometry(query(Operation::scatter, 64, 1, 4, 2)).input, 0U);
  EXPECT_EQ(geometry(query(Operation::scatter, 64, 2, 4, 2)).input, 16U);
  EXPECT_EQ(geometry(query(Operation::gather, 64, 1, 4, 2)).output, 0U);
  EXPECT_EQ(geometry(query(Operation::gather, 64, 2, 4, 2)).output, 16U);
}

TEST(Geometry, SendRecvGetsFromTheRankBefore) {
  EXPECT_EQ(geometry(query(Operation::send_recv, 8, 0, 3)).result.front().source, 2U);
  EXPECT_EQ(geometry(query(Operation::send_recv, 8, 2, 3)).result.front().source, 1U);
}

TEST(Geometry, ExchangeGetsFromTheRankBefore) {
  EXPECT_EQ(geometry(query(Operation::exchange, 8, 0, 3)).result,
            geometry(query(Operation::send_recv, 8, 0, 3)).result);
}

TEST(Geometry, PingPongIsBetweenTheFirstTwoRanks) {
  EXPECT_EQ(geometry(query(Operation::ping_pong, 8, 0, 3)).result.front().source, 1U);
  EXPECT_EQ(geometry(query(Operation::ping_pong, 8, 1, 3)).result.front().source, 0U);
  EXPECT_TRUE(geometry(query(Operation::ping_pong, 8, 2, 3)).result.empty());
}

TEST(Geometry, BarrierHasNoData) {
  const auto made = geometry(query(Operation::barrier, 64, 0, 4));
  EXPECT_EQ(made.size, Bytes{0});
  EXPECT_TRUE(made.result.empty());
}

class UnevenGeometry : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint64_t>> {};

TEST_P(UnevenGeometry, OfAllToAllAgreesAcrossRanks) {
  const auto [ranks, bytes] = GetParam();
  std::vector<Geometry> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(geometry(query(Operation::all_to_all_v, bytes, rank, ranks)));
  }
  for (std::uint32_t a = 0; a < ranks; ++a) {
    EXPECT_EQ(all[a].input * 4, all[a].size.value) << "each rank sends its whole input";
    EXPECT_EQ(all[a].output, all[a].input);
    for (std::uint32_t b = 0; b < ranks; ++b) {
      EXPECT_EQ(all[a].send_counts[b], all[b].receive_counts[a]) << a << " to " << b;
    }
  }
}

TEST_P(UnevenGeometry, OfAllGatherAndReduceScatterIsUnevenAndWhole) {
  const auto [ranks, bytes] = GetParam();
  const auto gathered = geometry(query(Operation::all_gather_v, bytes, 0, ranks));
  const auto scattered = geometry(query(Operation::reduce_scatter_v, bytes, 0, ranks));
  EXPECT_EQ(gathered.output * 4, gathered.size.value);
  EXPECT_EQ(scattered.input * 4, scattered.size.value);
  EXPECT_EQ(gathered.receive_counts, scattered.send_counts);
  if (ranks > 1) {
    EXPECT_NE(gathered.receive_counts.front(), gathered.receive_counts.back());
  }
}

TEST_P(UnevenGeometry, MostlyOfOneRankIsWholeAndAgreesAcrossRanks) {
  const auto [ranks, bytes] = GetParam();
  std::vector<Geometry> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto asked = query(Operation::all_to_all_v, bytes, rank, ranks);
    asked.parts = Parts::one;
    all.push_back(geometry(asked));
  }
  for (std::uint32_t a = 0; a < ranks; ++a) {
    EXPECT_EQ(all[a].input * 4, all[a].size.value);
    for (std::uint32_t b = 0; b < ranks; ++b) {
      EXPECT_EQ(all[a].send_counts[b], all[b].receive_counts[a]) << a << " to " << b;
    }
  }
  auto asked = query(Operation::all_gather_v, bytes, 0, ranks);
  asked.parts = Parts::one;
  const auto gathered = geometry(asked);
  EXPECT_EQ(gathered.output * 4, gathered.size.value);
  EXPECT_GE(gathered.receive_counts.front() * 10, gathered.output * 9);
  for (std::uint32_t i = 2; i < ranks; ++i) EXPECT_EQ(gathered.receive_counts[i], 0U);
}

TEST(Geometry, EvenPartsAreThoseOfTheOperationOnEqualOnes) {
  auto asked = query(Operation::all_gather_v, 4096, 1, 4);
  asked.parts = Parts::even;
  EXPECT_EQ(geometry(asked).receive_counts, std::vector<std::uint64_t>(4, 256));
}

INSTANTIATE_TEST_SUITE_P(RanksAndSizes,
                         UnevenGeometry,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8),
                                          testing::Values(4, 32, 1000, 65536)));

/// The regions must cover every element of an output exactly once.
TEST(Geometry, RegionsCoverTheOutputWithoutGapOrOverlap) {
  for (const OperationTraits& row : operations()) {
    if (row.operation == Operation::barrier) continue;
    for (const std::uint32_t ranks : {2U, 3U, 5U}) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto made = geometry(query(row.operation, 4096, rank, ranks, 1));
        if (made.result.empty()) continue;  // This rank has no output.
        std::size_t next = 0;
        for (const Region& region : made.result) {
          EXPECT_EQ(region.at, next) << row.name;
          next += region.count;
        }
        EXPECT_EQ(next, made.output) << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace xylem::tools
