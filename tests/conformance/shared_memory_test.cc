// SPDX-License-Identifier: Apache-2.0
//
// Collectives over shared memory that are large enough for its optimizations: slices are read in
// place, written once for several peers, and written with non-temporal stores. The receiver of a
// message may read it directly from the sender's memory.
#include "conformance/gifts.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/sanitizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

/// A number of elements that is a multiple of neither the slice nor the number of ranks.
constexpr std::size_t kCount = (5 << 20) / sizeof(std::int32_t) + 77;

const std::string kNonTemporal = "non_temporal", kPulled = "pulled", kAllocated = "allocated";

/// The number of ranks, and a variant of shared memory. The variant is a size
/// (XYLEM_SHARED_MEMORY), or non_temporal (all slots are written with non-temporal stores), or
/// pulled or allocated (messages are read from the sender's memory).
using World = std::tuple<std::uint32_t, std::string>;
class SharedMemory : public testing::TestWithParam<World> {};

RankOptions options_of(const World& world) {
  const auto& [ranks, memory] = world;
  RankOptions options{.size = ranks, .transport = "shm"};
  if (memory == kNonTemporal) {
    options.non_temporal = true;
  } else if (memory == kPulled) {
    options.environment["XYLEM_PULL_FROM"] = "4K";
  } else if (memory == kAllocated) {
    options.allocates_buffers = true;
  } else {
    options.environment["XYLEM_SHARED_MEMORY"] = memory;
  }
  return options;
}

/// Parameters: a World, and an algorithm for all_reduce.
class SharedMemoryAllReduce : public testing::TestWithParam<std::tuple<World, std::string>> {
 protected:
  static RankOptions options() {
    const auto& [world, algorithm] = GetParam();
    RankOptions options = options_of(world);
    options.environment["XYLEM_ALGORITHM"] = "all_reduce=" + algorithm;
    return options;
  }
};

TEST_P(SharedMemoryAllReduce, OfMuch) {
  run_ranks(options(), [](const Communicator& world) {
    for (int round = 0; round < 3; ++round) {
      Values in = gift(world.rank(), round, kCount), out(kCount);
      const bool in_place = round == 1;
      Values& result = in_place ? in : out;
      ASSERT_TRUE(
          world.all_reduce(std::span<const std::int32_t>(in), std::span(result)).wait().is_ok());
      ASSERT_EQ(result, sum_of(world.size(), round, kCount)) << "round " << round;
    }
  });
}

// The receiver has left and frees no slots. So messages to it wait for room, and are never posted.
TEST(SharedMemoryOfARankThatLeft, EndsWhoOnlySendsToIt) {
  for (const std::string operation : {"broadcast", "scatter", "reduce", "gather"}) {
    SCOPED_TRACE(operation);
    RankOptions options{.size = 2, .transport = "shm", .environment = {{"XYLEM_TIMEOUT", "60s"}}};
    run_ranks(options, [&operation](const Communicator& world) {
      const bool is_root_sender = operation == "broadcast" || operation == "scatter";
      const std::uint32_t sender = is_root_sender ? 0 : 1;
      if (world.rank() != sender) return;  // This rank leaves.
      Values in(2 * kCount, 1), out(2 * kCount);
      const std::span<const std::int32_t> all(in), part(in.data(), kCount);
      const std::span<std::int32_t> result(out), result_part(out.data(), kCount);
      const Work work = operation == "broadcast" ? world.broadcast(part, result_part, 0)
                        : operation == "scatter" ? world.scatter(all, result_part, 0)
                        : operation == "reduce"  ? world.reduce(part, result_part, RedOp::sum, 0)
                                                 : world.gather(part, result, 0);
      const Status status = work.wait_for(std::chrono::seconds(10));
      EXPECT_THAT(status, testing::AllOf(fails_as(Code::peer_lost), blames(1 - sender)));
      (void)work.wait();
    });
  }
}

TEST_P(SharedMemory, ReduceScatterAndAllGatherOfMuch) {
  run_ranks(options_of(GetParam()), [](const Communicator& world) {
    const std::size_t part = kCount / world.size();
    for (int round = 0; round < 2; ++round) {
      const Values in = gift(world.rank(), round, part * world.size());
      const Values sums = sum_of(world.size(), round, part * world.size());
      Values mine(part), all(part * world.size());
      ASSERT_TRUE(
          world.reduce_scatter(std::span<const std::int32_t>(in), std::span(mine)).wait().is_ok());
      ASSERT_TRUE(std::equal(mine.begin(), mine.end(),
                             sums.begin() + static_cast<std::ptrdiff_t>(part * world.rank())));
      const Status gathered =
          world.all_gather(std::span<const std::int32_t>(mine), std::span(all)).wait();
      ASSERT_TRUE(gathered.is_ok()) << gathered.to_string();
      ASSERT_EQ(all, sums);
    }
  });
}

/// Like SharedMemory, with fewer worlds, for tests that take long.
class SharedMemoryPastCaches : public SharedMemory {};

TEST_P(SharedMemoryPastCaches, OutputsAnywhere) {
  run_ranks(options_of(GetParam()), [](const Communicator& world) {
    const std::size_t me = world.rank();
    // The outputs of all ranks together exceed kCachedOutputs. Above this size, the engine uses
    // non-temporal stores.
    const std::size_t part = (17 << 20) / sizeof(std::int32_t) / world.size();
    const std::size_t all = part * world.size();
    constexpr std::int32_t kUntouched = -1;
    for (const std::size_t begin : {1U, 7U}) {
      if (kHasThreadSanitizer && begin == 1) continue;
      const Values in = gift(world.rank(), 0, all + begin);
      const Values sums = sum_of(world.size(), 0, all + begin);
      const auto gift_part = std::span(in).subspan(begin, part);
      const auto sums_of_all = std::span(sums).subspan(begin);
      // The memory before and after an output must not change.
      const auto check = [&](std::span<const std::int32_t> right, auto&& call) {
        Values out(right.size() + begin + 1, kUntouched), expected = out;
        std::ranges::copy(right, expected.begin() + static_cast<std::ptrdiff_t>(begin));
        ASSERT_TRUE(call(std::span(out).subspan(begin, right.size())).wait().is_ok());
        ASSERT_TRUE(out == expected);
      };
      check(sums_of_all.first(part), [&](auto out) { return world.all_reduce(gift_part, out); });
      check(sums_of_all.subspan(part * me, part),
            [&](auto out) { return world.reduce_scatter(std::span(in).subspan(begin), out); });
      check(sums_of_all,
            [&](auto out) { return world.all_gather(sums_of_all.subspan(part * me, part), out); });
    }
  });
}

TEST_P(SharedMemoryAllReduce, SeveralAtOnceThatNobodyWaitsForInOrder) {
  run_ranks(options(), [](const Communicator& world) {
    constexpr int kOperations = 6;
    std::vector<Values> in, out;
    std::vector<Work> works;
    for (int i = 0; i < kOperations; ++i) {
      const std::size_t count = i % 2 == 0 ? kCount / 8 : 100;
      in.push_back(gift(world.rank(), i, count));
      out.emplace_back(count);
    }
    for (int i = 0; i < kOperations; ++i) {
      works.push_back(world.all_reduce(std::span<const std::int32_t>(in[i]), std::span(out[i])));
    }
    for (int i = kOperations; i-- > 0;) {
      ASSERT_TRUE(works[i].wait().is_ok());
      ASSERT_EQ(out[i], sum_of(world.size(), i, out[i].size())) << "operation " << i;
    }
  });
}

TEST_P(SharedMemory, OneStartsAllAtOnceAndOthersOneByOne) {
  run_ranks(options_of(GetParam()), [](const Communicator& world) {
    constexpr int kOperations = 8;
    constexpr std::size_t kPart = kCount / 4;
    std::vector<Values> values;
    std::vector<Work> works;
    for (int i = 0; i < kOperations; ++i) {
      values.push_back(world.rank() == 0 ? gift(0, i, kPart) : Values(kPart));
      const Work work = world.broadcast(std::span(values.back()), 0);
      if (world.rank() == 0) {
        works.push_back(work);
      } else {
        ASSERT_TRUE(work.wait().is_ok());
        ASSERT_EQ(values.back(), gift(0, i, kPart));
      }
    }
    for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
  });
}

TEST_P(SharedMemory, BroadcastOfMuch) {
  run_ranks(options_of(GetParam()), [](const Communicator& world) {
    for (std::uint32_t root = 0; root < world.size(); ++root) {
      const auto round = static_cast<int>(root);
      Values values = world.rank() == root ? gift(root, round, kCount) : Values(kCount);
      ASSERT_TRUE(world.broadcast(std::span(values), root).wait().is_ok());
      ASSERT_EQ(values, gift(root, round, kCount));
    }
  });
}

TEST_P(SharedMemory, MessagesOfAllSizesToAllAtOnce) {
  run_ranks(options_of(GetParam()), [](const Communicator& world) {
    const auto me = static_cast<int>(world.rank());
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{1024}, std::size_t{16'384}, kCount / 4}) {
      std::vector<Values> sent, got;
      std::vector<Work> works;
      for (std::uint32_t peer = 0; peer < world.size(); ++peer) {
        sent.push_back(gift(world.rank(), static_cast<int>(peer), count));
        got.emplace_back(count);
      }
      for (std::uint32_t peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        works.push_back(world.send(std::span<const std::int32_t>(sent[peer]), peer, 3));
        works.push_back(world.recv(std::span(got[peer]), peer, 3));
      }
      for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
      for (std::uint32_t peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        ASSERT_EQ(got[peer], gift(peer, me, count)) << count << " from " << peer;
      }
    }
  });
}

TEST(SharedMemoryBetweenCommunicators, ACallThatWaitsForOneRankHoldsUpNoOther) {
  for (const std::size_t count : {2U, 1000U, 100'000U}) {
    for (const char* const wait : {"auto", "spin"}) {
      RankOptions options{.size = 3, .transport = "shm", .environment = {{"XYLEM_WAIT", wait}}};
      run_ranks(options, [&](const Communicator& world) {
        const auto me = static_cast<std::int32_t>(world.rank());
        const auto two = value_of(world.split(me / 2, me));
        const Values in = gift(world.rank(), 0, count);
        Values out(count), told(1);
        if (me == 2) {
          // This rank calls only after a message of rank 1, which rank 1 sends when it has finished
          // with rank 0.
          ASSERT_TRUE(world.recv(std::span(told), 1, 0).wait().is_ok());
        }
        const Work sum = world.all_reduce(std::span<const std::int32_t>(in), std::span(out));
        if (me < 2) {
          Values values = me == 0 ? gift(0, 1, kCount) : Values(kCount);
          ASSERT_TRUE(two.broadcast(std::span(values), 0).wait().is_ok());
          ASSERT_EQ(values, gift(0, 1, kCount));
        }
        if (me == 1) {
          ASSERT_TRUE(world.send(std::span<const std::int32_t>(told), 2, 0).wait().is_ok());
        }
        ASSERT_TRUE(sum.wait().is_ok());
        ASSERT_EQ(out, sum_of(3, 0, count));
      });
    }
  }
}

TEST(SharedMemoryBetweenCommunicators, WhatOnePeerHasTakenServesTheOthers) {
  for (const char* const wait : {"auto", "spin", "yield"}) {
    RankOptions options{.size = 4, .transport = "shm", .environment = {{"XYLEM_WAIT", wait}}};
    run_ranks(options, [&](const Communicator& world) {
      const auto me = static_cast<std::int32_t>(world.rank());
      const auto without_1 = value_of(world.split(me == 1 ? 1 : 0, me));
      constexpr std::size_t kSlot = (64 << 10) / sizeof(std::int32_t);
      for (int round = 0; round < 40 && me < 2; ++round) {
        Values values = me == 0 ? gift(0, round, kSlot) : Values(kSlot);
        const Work work = me == 0 ? world.send(std::span<const std::int32_t>(values), 1, 0)
                                  : world.recv(std::span(values), 0, 0);
        ASSERT_TRUE(work.wait().is_ok());
        ASSERT_EQ(values, gift(0, round, kSlot));
      }
      if (me == 1) return;
      Values values = me == 0 ? gift(0, 7, kCount) : Values(kCount);
      ASSERT_TRUE(without_1.broadcast(std::span(values), 0).wait().is_ok());
      ASSERT_EQ(values, gift(0, 7, kCount));
    });
  }
}

std::string name_of(const World& world) {
  const auto& [ranks, memory] = world;
  return std::to_string(ranks) + "_" + memory;
}

std::string name_of_plain(const testing::TestParamInfo<World>& one) { return name_of(one.param); }
std::string name_of_all_reduce(const testing::TestParamInfo<std::tuple<World, std::string>>& one) {
  return name_of(std::get<0>(one.param)) + "_" + std::get<1>(one.param);
}

auto worlds() {
  return testing::Combine(testing::Values(2, 3, 5, 8), testing::Values("auto", "288K"));
}

auto far_worlds() {
  return testing::Combine(testing::Values(2, 3, 5),
                          testing::Values(kNonTemporal, kPulled, kAllocated));
}

INSTANTIATE_TEST_SUITE_P(Worlds,
                         SharedMemoryPastCaches,
                         testing::Values(World{2, "auto"},
                                         World{3, kNonTemporal},
                                         World{3, kAllocated},
                                         World{5, "288K"}),
                         name_of_plain);
INSTANTIATE_TEST_SUITE_P(Worlds, SharedMemory, worlds(), name_of_plain);
INSTANTIATE_TEST_SUITE_P(FarWorlds, SharedMemory, far_worlds(), name_of_plain);
INSTANTIATE_TEST_SUITE_P(
    FarWorlds,
    SharedMemoryAllReduce,
    testing::Combine(far_worlds(), testing::Values("two_shot", "ring", "recursive_doubling")),
    name_of_all_reduce);
INSTANTIATE_TEST_SUITE_P(Worlds,
                         SharedMemoryAllReduce,
                         testing::Combine(worlds(), testing::Values("two_shot", "ring")),
                         name_of_all_reduce);

// The copy that applies the factor writes directly into a slot, with non-temporal stores.
TEST(PremultipliedSums, AreRightInSlotsPastTheCache) {
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    RankOptions options{.size = ranks, .transport = "shm"};
    options.non_temporal = true;
    run_ranks(options, [](const Communicator& world) {
      for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
        const std::vector<float> input(count, 2.0F);
        std::vector<float> output(count);
        const auto op = ReduceOp::premul_sum(world.rank() + 1);
        ASSERT_TRUE(world.all_reduce(std::span(input), std::span(output), op).wait());
        const auto n = static_cast<float>(world.size());
        EXPECT_EQ(output, std::vector<float>(count, n * (n + 1)));
      }
    });
  }
}

}  // namespace
}  // namespace xylem::test
