// SPDX-License-Identifier: Apache-2.0
//
// The factors and sizes with which the bench's columns match those of nccl-tests.
#include "support/outcome.h"
#include "tools/src/bench/bandwidth.h"
#include "tools/src/bench/options.h"

#include <gtest/gtest.h>

namespace xylem::tools {
namespace {

TEST(BusFactor, IsThatOfNcclTestsPerformanceDocument) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::send_recv, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::exchange, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::ping_pong, 4), 1.0);
}

TEST(BusFactor, OfGatherAndScatterLeavesTheRootsOwnPartOut) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::gather, 5), 0.8);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::scatter, 5), 0.8);
}

TEST(BusFactor, OfUnevenFormsIsThatOfEvenOnes) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather_v, 3), bus_factor(Operation::all_gather, 3));
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter_v, 3),
                   bus_factor(Operation::reduce_scatter, 3));
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all_v, 3), bus_factor(Operation::all_to_all, 3));
}

TEST(BusFactor, OfOneRankIsZeroWhereOnlyOthersSharesCount) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 1), 0.0);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 1), 0.0);
}

TEST(LeastTraffic, ReadsEveryInputAndWritesEveryOutputOnce) {
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_reduce, 2, false), 4);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_reduce, 3, true), 6);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_gather, 4, false), 5);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::reduce_scatter, 4, false), 5);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::reduce, 4, false), 5);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::gather, 4, false), 2);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::exchange, 4, false), 8);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::ping_pong, 4, false), 2) << "of one message";
  EXPECT_DOUBLE_EQ(least_traffic(Operation::barrier, 4, false), 0);
}

TEST(LeastTraffic, LeavesOutWhatIsInItsPlaceAlready) {
  EXPECT_DOUBLE_EQ(least_traffic(Operation::broadcast, 2, false), 3);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::broadcast, 2, true), 2);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_gather, 4, true), 4);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_to_all, 4, true), 6);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::scatter, 4, true), 1.5);
  EXPECT_DOUBLE_EQ(least_traffic(Operation::all_reduce, 1, true), 0);
}

TEST(LeastTime, CountsACopiedByteAsReadAndWritten) {
  EXPECT_DOUBLE_EQ(least_time(4, {1'000'000}, {20}), 100);
}

TEST(AlgorithmBandwidth, IsInBillionsOfBytesPerSecond) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth({1'000'000'000}, 1e6).value, 1.0);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth({1000}, 1).value, 1.0);
}

TEST(AlgorithmBandwidth, OfNoTimeIsZeroAndNotInfinite) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth({8}, 0).value, 0.0);
}

TEST(Sweep, GoesFromBeginToEndByTheFactor) {
  BenchOptions options;
  options.begin = {8};
  options.end = {64};
  EXPECT_EQ(sweep(options), (std::vector<Bytes>{{8}, {16}, {32}, {64}}));
  options.factor = 4;
  EXPECT_EQ(sweep(options), (std::vector<Bytes>{{8}, {32}}));
}

TEST(Sweep, OfTheLargestSizesEnds) {
  BenchOptions options;
  options.begin = {std::uint64_t{1} << 62};
  options.end = {~std::uint64_t{0}};
  EXPECT_EQ(sweep(options), (std::vector<Bytes>{{1ULL << 62}, {1ULL << 63}}));
}

TEST(ParseOperation, KnowsEveryNameAndSuggestsTheNearest) {
  for (const OperationTraits& row : operations()) {
    const auto parsed = parse_operation(row.name);
    ASSERT_TRUE(parsed) << row.name;
    EXPECT_EQ(*parsed, row.operation);
    EXPECT_EQ(traits(*parsed).name, row.name);
  }
  EXPECT_THAT(parse_operation("all_reduse"), fails_with("did you mean all_reduce?"));
}

}  // namespace
}  // namespace xylem::tools
