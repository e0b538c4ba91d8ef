// SPDX-License-Identifier: Apache-2.0
//
// Deadlines, owned descriptors, memory kinds and hash mixing.
#include "xylem/base/clock.h"
#include "xylem/base/hash.h"
#include "xylem/base/memory.h"
#include "xylem/base/unique_fd.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace xylem {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(Deadline, InThePastHasPassedAndLeavesNothing) {
  for (const auto wait : {Clock::duration(0), Clock::duration(-1), Clock::duration(hours(-1))}) {
    const auto deadline = Deadline::after(wait);
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(deadline.left(), Clock::duration::zero());
    EXPECT_EQ(deadline.left_ms(), 0);
  }
}

TEST(Deadline, InTheFutureHasNotPassed) {
  const auto deadline = Deadline::after(hours(1));
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left(), std::chrono::minutes(59));
  EXPECT_LE(deadline.left_ms(), 3'600'000);
  EXPECT_GT(deadline.left_ms(), 3'540'000);
}

TEST(Deadline, RoundsUpSoThatPollDoesNotSpin) {
  const auto deadline = Deadline::after(microseconds(300));
  // If the deadline has not passed now, it had time left when left_ms() was called.
  const int milliseconds_left = deadline.left_ms();
  if (!deadline.passed()) {
    EXPECT_EQ(milliseconds_left, 1);
  }
}

TEST(Deadline, LongestWaitDoesNotOverflow) {
  const auto deadline = Deadline::after(Clock::duration::max());
  EXPECT_EQ(deadline.point(), Clock::time_point::max());
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left_ms(), std::numeric_limits<int>::max());
}

TEST(Deadline, EarlierOfTwo) {
  const auto soon = Deadline::after(milliseconds(1));
  const auto late = Deadline::after(hours(1));
  EXPECT_EQ(earlier(soon, late).point(), soon.point());
  EXPECT_EQ(earlier(late, soon).point(), soon.point());
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(UniqueFd, ClosesAtTheEnd) {
  int number = -1;
  {
    const UniqueFd fd = open_null();
    number = fd.get();
    EXPECT_TRUE(fd);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, EmptyOwnsNothing) {
  UniqueFd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
  fd.reset();
  EXPECT_EQ(fd.release(), -1);
}

TEST(UniqueFd, ZeroIsADescriptor) {
  UniqueFd fd(0);
  EXPECT_TRUE(fd);
  EXPECT_EQ(fd.release(), 0);
}

TEST(UniqueFd, MovingTransfersTheDescriptor) {
  UniqueFd first = open_null();
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move is the subject
  EXPECT_EQ(second.get(), number);

  UniqueFd third = open_null();
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), number);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, AssignmentToItselfKeepsTheDescriptor) {
  UniqueFd fd = open_null();
  UniqueFd& same = fd;
  const int number = fd.get();
  fd = std::move(same);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, ReleaseKeepsTheDescriptorOpen) {
  UniqueFd fd = open_null();
  const int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  fd.reset(number);
}

TEST(Memory, DefaultsToTheHost) {
  EXPECT_EQ(Memory{}.kind, MemoryKind::host);
  EXPECT_EQ(Memory{}, (Memory{MemoryKind::host, -1}));
  EXPECT_NE((Memory{MemoryKind::cuda, 0}), (Memory{MemoryKind::cuda, 1}));
}

TEST(Memory, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  constexpr int kLast = static_cast<int>(MemoryKind::rocm);
  for (int kind = 0; kind <= kLast; ++kind) names.insert(name(static_cast<MemoryKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kLast) + 1);
  EXPECT_EQ(name(MemoryKind::cuda_managed), "cuda_managed");
  EXPECT_EQ(name(static_cast<MemoryKind>(kLast + 1)), "unknown");
}

TEST(Hash, DependsOnOrderLengthAndSeed) {
  EXPECT_NE(combine(combine(0, 1), 2), combine(combine(0, 2), 1));
  EXPECT_NE(hash_text("ab"), hash_text("ba"));
  EXPECT_NE(hash_text(""), hash_text(std::string_view("\0", 1)));
  EXPECT_NE(hash_text("ab", 1), hash_text("ab", 2));
  static_assert(hash_text("xylem") == hash_text("xylem"));
}

TEST(Hash, OneBitOfInputChangesAboutHalfOfTheOutput) {
  for (int bit = 0; bit < 64; ++bit) {
    const auto difference = mix(0x1234567) ^ mix(0x1234567 ^ (std::uint64_t{1} << bit));
    EXPECT_GT(__builtin_popcountll(difference), 12) << bit;
  }
}

}  // namespace
}  // namespace xylem
