// SPDX-License-Identifier: Apache-2.0
//
// What is shm's own beyond the transport contract: how memory is divided, and that a segment has
// one writer.
#include "xylem/transport/shm.h"

#include "shm/segment.h"
#include "shm/slot_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace xylem::transport::shm {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

TEST(ShmGeometry, KeepsToItsBudgetAndGivesEveryChannelASlotOfEachSize) {
  for (const std::uint32_t channels : {1U, 2U, 3U, 5U, 8U, 63U}) {
    SCOPED_TRACE(channels);
    const auto geometry = plan_geometry(channels, 2 * kMiB);
    ASSERT_TRUE(geometry.is_ok()) << geometry.status().to_string();
    EXPECT_LE(geometry->bytes(), 2 * kMiB);
    EXPECT_GE(geometry->bytes(), 2 * kMiB - geometry->large_bytes - geometry->small_bytes);
    EXPECT_GT(geometry->small_slots, channels);
    EXPECT_GT(geometry->large_slots, channels);
    // Rings and slots lie one after another.
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      EXPECT_EQ(geometry->ring_offset(channel + 1) - geometry->ring_offset(channel),
                kEntries * sizeof(Entry));
    }
    for (std::uint32_t slot = 0; slot < geometry->slots(); ++slot) {
      EXPECT_EQ(geometry->slot_offset(slot + 1) - geometry->slot_offset(slot),
                geometry->slot_bytes(slot));
    }
  }
}

TEST(ShmGeometry, SaysWhatIsMissing) {
  const auto geometry = plan_geometry(64, kMiB / 2);
  EXPECT_EQ(geometry.code(), Code::exhausted);
  EXPECT_THAT(geometry.status().to_string(), HasSubstr("524288 bytes"));
  EXPECT_THAT(geometry.status().to_string(), HasSubstr("64 channels"));
  EXPECT_EQ(plan_geometry(0, kMiB).code(), Code::exhausted);
  EXPECT_EQ(make_shm({.endpoints = 1 << 20}).code(), Code::exhausted);
}

TEST(ShmSlotPool, ChannelThatTakesAllLeavesOneToEachOfTheOthers) {
  constexpr std::uint32_t kChannels = 3;
  const Geometry geometry = *plan_geometry(kChannels, kMiB);
  SlotPool pool(geometry);
  std::set<std::uint32_t> taken;
  while (const auto slot = pool.take(0, geometry.large_bytes)) taken.insert(*slot);
  EXPECT_EQ(taken.size(), geometry.large_slots - (kChannels - 1));
  for (const std::uint32_t channel : {1U, 2U}) {
    const auto slot = pool.take(channel, geometry.large_bytes);
    ASSERT_TRUE(slot);
    EXPECT_TRUE(taken.insert(*slot).second) << "given twice";
    EXPECT_FALSE(pool.take(channel, geometry.large_bytes));
  }
  EXPECT_TRUE(pool.take(1, 1)) << "of the other size there are all";
  // What comes back goes to whoever asks.
  const std::uint32_t freed = *taken.begin();
  pool.give_back(0, freed);
  EXPECT_EQ(pool.take(2, geometry.large_bytes), std::optional(freed));
}

TEST(ShmSegment, IsWrittenByItsOwnerAlone) {
  const Nonce nonce{1, 2};
  auto segment = Segment::create(*plan_geometry(1, kMiB), nonce);
  ASSERT_TRUE(segment.is_ok()) << segment.status().to_string();
  EXPECT_NE(ftruncate(segment->fd(), 0), 0) << "no peer can take the memory away";
  void* writable =
      mmap(nullptr, segment->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd(), 0);
  EXPECT_EQ(writable, MAP_FAILED);
  if (writable != MAP_FAILED) munmap(writable, segment->bytes());

  auto seen = Segment::open(UniqueFd(dup(segment->fd())), nonce);
  ASSERT_TRUE(seen.is_ok()) << seen.status().to_string();
  EXPECT_EQ(seen->geometry(), segment->geometry());
  std::memset(segment->slot(0), 7, 16);
  EXPECT_EQ(seen->slot(0)[15], std::byte{7});
}

TEST(ShmSegment, OfAnotherNonceOrOfNobodyIsRefused) {
  const auto segment = Segment::create(*plan_geometry(1, kMiB), {1, 2});
  ASSERT_TRUE(segment.is_ok());
  EXPECT_EQ(Segment::open(UniqueFd(dup(segment->fd())), {1, 3}).code(), Code::mismatch);
  EXPECT_EQ(Segment::open(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), {1, 2}).code(),
            Code::mismatch);
  EXPECT_EQ(Segment::open(UniqueFd(), {1, 2}).code(), Code::mismatch);
}

}  // namespace
}  // namespace xylem::transport::shm
