// SPDX-License-Identifier: Apache-2.0
//
// Repeats small calls over shared memory. Depending on when the peers call, a call is complete when
// it returns, or becomes an operation. The sizes are close to those at which messages change their
// form.
#include "conformance/gifts.h"
#include "support/ranks.h"
#include "support/sanitizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

/// Counts of 4-byte elements. The message fits into a queue entry, a small slot, a large slot, or
/// several slots.
constexpr std::array<std::size_t, 12> kCounts{0,  1,    2,    16,   17,     26,
                                              27, 1014, 1015, 1024, 16'384, 16'385};

/// The inputs of all ranks, in the order of the ranks.
Values all_of(std::uint32_t ranks, int round, std::size_t count) {
  Values all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Values one = gift(rank, round, count);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::span<const std::int32_t> read(const Values& values) { return values; }

class SmallCalls : public testing::TestWithParam<std::uint32_t> {
 protected:
  static RankOptions options() { return {.size = GetParam(), .transport = "shm"}; }
};

/// Delays a rank at random. Each rank draws for itself, so peers often have to wait.
void dawdle(std::mt19937& dice) {
  for (auto left = dice() % 8 == 0 ? dice() % 40 : 0; left > 0; --left) std::this_thread::yield();
}

TEST_P(SmallCalls, OfAllKindsInAnyOrder) {
  run_ranks(options(), [](const Communicator& world) {
    const std::uint32_t size = world.size(), me = world.rank();
    // All ranks make the same calls. Each rank is late at other times.
    std::mt19937 script(7), dice(me);
    constexpr int kRounds = kHasThreadSanitizer ? 120 : 400;
    for (int round = 0; round < kRounds; ++round) {
      dawdle(dice);
      // Makes each call several times in a row, as applications often do.
      static constexpr int kInARow = 4;
      std::mt19937 same(static_cast<unsigned>(round / kInARow));
      const std::size_t count = kCounts[same() % kCounts.size()];
      const std::uint32_t root = same() % size;
      const bool in_place = script() % 4 == 0;
      const Values mine = gift(me, round, count);
      switch (same() % 7) {
        case 0: {
          Values out = in_place ? mine : Values(count);
          const Work work = in_place ? world.all_reduce(read(out), std::span(out))
                                     : world.all_reduce(read(mine), std::span(out));
          ASSERT_TRUE(work.wait());
          ASSERT_EQ(out, sum_of(size, round, count)) << "round " << round;
          ASSERT_EQ(work.source(), me);
          break;
        }
        case 1: {
          Values out(count * size);
          ASSERT_TRUE(world.all_gather(read(mine), std::span(out)).wait());
          ASSERT_EQ(out, all_of(size, round, count)) << "round " << round;
          break;
        }
        case 2: {
          const Values in = gift(me, round, count * size);
          const Values sums = sum_of(size, round, count * size);
          Values out(count);
          ASSERT_TRUE(world.reduce_scatter(read(in), std::span(out)).wait());
          const auto part = read(sums).subspan(count * me, count);
          ASSERT_EQ(out, Values(part.begin(), part.end())) << "round " << round;
          break;
        }
        case 3: {
          Values values = me == root ? mine : Values(count);
          ASSERT_TRUE(world.broadcast(std::span(values), root).wait());
          ASSERT_EQ(values, gift(root, round, count)) << "round " << round;
          break;
        }
        case 4: {
          const Values in = gift(me, round, count * size);
          Values out(count * size);
          ASSERT_TRUE(world.all_to_all(read(in), std::span(out)).wait());
          for (std::uint32_t rank = 0; rank < size; ++rank) {
            const Values theirs = gift(rank, round, count * size);
            const auto part = read(theirs).subspan(count * me, count);
            const auto got = read(out).subspan(count * rank, count);
            ASSERT_EQ(Values(got.begin(), got.end()), Values(part.begin(), part.end()));
          }
          break;
        }
        case 5: ASSERT_TRUE(world.barrier().wait()); break;
        default: {
          Values out(me == root ? count : 0);
          ASSERT_TRUE(world.reduce(read(mine), std::span(out), RedOp::sum, root).wait());
          if (me == root) {
            ASSERT_EQ(out, sum_of(size, round, count)) << "round " << round;
          }
        }
      }
    }
  });
}

TEST_P(SmallCalls, SeveralUnderWayAtOnce) {
  run_ranks(options(), [](const Communicator& world) {
    std::mt19937 dice(world.rank());
    for (int round = 0; round < 200; ++round) {
      dawdle(dice);
      std::array<Values, 5> out;
      std::array<Work, 5> works;
      std::vector<Values> in;
      for (std::size_t i = 0; i < out.size(); ++i) {
        in.push_back(gift(world.rank(), round, kCounts[i + 1]));
        out[i].resize(in.back().size());
      }
      for (std::size_t i = 0; i < out.size(); ++i) {
        works[i] = world.all_reduce(read(in[i]), std::span(out[i]));
      }
      for (std::size_t i = out.size(); i-- > 0;) {
        ASSERT_TRUE(works[i].wait());
        ASSERT_EQ(out[i], sum_of(world.size(), round, out[i].size()));
      }
    }
  });
}

TEST_P(SmallCalls, MessagesAroundTheRing) {
  run_ranks(options(), [](const Communicator& world) {
    const std::uint32_t size = world.size(), me = world.rank();
    const std::uint32_t next = (me + 1) % size, before = (me + size - 1) % size;
    std::mt19937 dice(me);
    for (int round = 0; round < 600; ++round) {
      dawdle(dice);
      const std::size_t count = kCounts[static_cast<std::size_t>(round / 5) % kCounts.size()];
      const Values mine = gift(me, round, count);
      Values out(count);
      Work sent, received;
      if (dice() % 3 == 0) {
        received = world.recv(std::span(out), before);
        sent = world.send(read(mine), next);
      } else {
        sent = world.send(read(mine), next);
        received = world.recv(std::span(out), before);
      }
      ASSERT_TRUE(wait_all(sent, received));
      ASSERT_EQ(out, gift(before, round, count)) << "round " << round;
      ASSERT_EQ(received.source(), before);
    }
  });
}

TEST(SmallMessages, AreReceivedInAnotherOrderThanSent) {
  run_ranks({.size = 3, .transport = "shm"}, [](const Communicator& world) {
    constexpr std::uint32_t kTags = 12;  // More messages than there are slots.
    for (int round = 0; round < 30; ++round) {
      const std::size_t count = kCounts[static_cast<std::size_t>(round) % kCounts.size()];
      // Each round uses other tags, so a receive from any source matches no message of the next
      // round.
      const std::uint32_t first_tag = kTags * static_cast<std::uint32_t>(round);
      if (world.rank() > 0) {
        std::vector<Values> values;
        std::vector<Work> sent;
        for (std::uint32_t tag = 0; tag < kTags; ++tag) values.push_back(gift(tag, round, count));
        for (std::uint32_t tag = 0; tag < kTags; ++tag) {
          sent.push_back(world.send(read(values[tag]), 0, first_tag + tag));
        }
        for (const Work& work : sent) ASSERT_TRUE(work.wait());
      } else {
        for (const std::uint32_t from : {2U, 1U}) {
          for (std::uint32_t i = 0; i < kTags; ++i) {
            const std::uint32_t tag = kTags - 1 - i;
            Values out(count);
            const Work work = i % 5 == 4 && from == 1
                                  ? world.recv(std::span(out), std::nullopt, first_tag + tag)
                                  : world.recv(std::span(out), from, first_tag + tag);
            ASSERT_TRUE(work.wait());
            ASSERT_EQ(out, gift(tag, round, count)) << "round " << round << ", tag " << tag;
            ASSERT_EQ(work.source(), from);
          }
        }
      }
    }
  });
}

// If the message arrives before recv() is called, recv() compares the two lengths within the call.
// Otherwise they are compared later.
TEST(SmallMessages, MayBeShorterThanTheirReceivesButNotLonger) {
  RankOptions options{.size = 2, .transport = "shm", .environment = {{"XYLEM_TIMEOUT", "60s"}}};
  run_ranks(options, [](const Communicator& world) {
    const std::uint32_t me = world.rank(), peer = 1 - me;
    std::mt19937 script(11), dice(me);
    constexpr int kRounds = kHasThreadSanitizer ? 200 : 1000;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t count = kCounts[script() % kCounts.size()];
      const bool is_too_long = count > 0 && script() % 4 == 0;
      const std::size_t room = is_too_long ? script() % count : count + script() % 5;
      const Values mine = gift(me, round, count), theirs = gift(peer, round, count);
      Values out(room, -1), expected(room, -1);
      if (!is_too_long) std::ranges::copy(theirs, expected.begin());
      Work received;
      const bool receives_first = dice() % 2 == 0;
      dawdle(dice);
      if (receives_first) received = world.recv(std::span(out), peer);
      const Work sent = world.send(read(mine), peer);
      dawdle(dice);
      if (!receives_first) received = world.recv(std::span(out), peer);
      const Status got = received.wait(), went = sent.wait();
      ASSERT_EQ(got.code(), is_too_long ? Code::mismatch : Code::ok) << got.to_string();
      ASSERT_EQ(received.failed_alone(), is_too_long);
      ASSERT_TRUE(went || (is_too_long && sent.failed_alone())) << went.to_string();
      ASSERT_EQ(out, expected) << count << " elements into " << room;
      if (is_too_long) continue;
      ASSERT_EQ(received.count(), count);
      ASSERT_EQ(received.source(), peer);
    }
  });
}

/// Values whose sum depends on the order of the additions.
std::vector<float> rough(std::uint32_t rank, std::size_t count) {
  std::mt19937 dice(rank + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(dice()), static_cast<int>(dice() % 40) - 52);
  }
  return values;
}

/// Makes four all_reduces one after another, and returns their results at each rank.
std::vector<std::vector<float>> sums_over(const std::string& transport,
                                          const std::string& slice,
                                          const std::string& algorithm,
                                          std::uint32_t ranks,
                                          std::size_t count) {
  constexpr std::size_t kCalls = 4;
  std::vector<std::vector<float>> sums(ranks);
  RankOptions options{.size = ranks, .transport = transport};
  options.environment["XYLEM_ALGORITHM"] = "all_reduce=" + algorithm;
  options.environment["XYLEM_SLICE"] = slice;
  run_ranks(options, [&](const Communicator& world) {
    const std::vector<float> in = rough(world.rank(), count);
    std::vector<float>& out = sums[world.rank()];
    out.resize(kCalls * count);
    for (std::size_t call = 0; call < kCalls; ++call) {
      const auto part = std::span(out).subspan(call * count, count);
      ASSERT_TRUE(world.all_reduce(std::span<const float>(in), part).wait());
    }
  });
  return sums;
}

// A schedule may run in rounds (with many slices), with posted messages (over loopback, and in the
// first call), or within the call. Each step has the same operands in the same order, so the
// results must be equal bit by bit.
TEST(SmallReductions, AreTheSameToTheBitHoweverTheyAreRun) {
  std::vector<float> one_way(200), other_way(200);
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    const auto up = rough(rank, 200), down = rough(4 - rank, 200);
    for (std::size_t i = 0; i < 200; ++i) one_way[i] += up[i], other_way[i] += down[i];
  }
  ASSERT_NE(one_way, other_way) << "the order must matter";
  for (const char* algorithm : {"one_shot", "recursive_doubling", "two_shot", "ring",
                                "rabenseifner", "double_binary_tree"}) {
    for (const std::uint32_t ranks : {2U, 3U, 5U, 8U}) {
      for (const std::size_t count : {1U, 10U, 200U, 5000U}) {
        const auto in_rounds = sums_over("loopback", "64", algorithm, ranks, count);
        for (const char* transport : {"loopback", "shm"}) {
          EXPECT_EQ(sums_over(transport, "64K", algorithm, ranks, count), in_rounds)
              << algorithm << " over " << transport << ", " << ranks << " ranks, " << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SmallCalls, testing::Values(1, 2, 3, 5, 8));

}  // namespace
}  // namespace xylem::test
