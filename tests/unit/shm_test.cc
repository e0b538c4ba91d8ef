// SPDX-License-Identifier: Apache-2.0
//
// Promises of shm that other transports do not make: the division of memory, that a segment has
// only one writer, and that slots are handed over whole. In these tests, both ends of a channel use
// one mapping, so that the thread sanitizer observes the accesses of both.
#include "xylem/transport/shm.h"

#include "matcher.h"
#include "shm/incoming.h"
#include "shm/outgoing.h"
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"
#include "support/file_size_limit.h"
#include "support/outcome.h"
#include "support/sanitizer.h"
#include "xylem/transport/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace xylem::transport::shm {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

TEST(ShmGeometry, KeepsToItsBudgetAndGivesEveryChannelASlotOfEachSize) {
  for (const std::uint32_t channels : {1U, 2U, 3U, 5U, 8U, 60U}) {
    SCOPED_TRACE(channels);
    const auto geometry = value_of(plan_geometry(channels, 2 * kMiB));
    EXPECT_LE(geometry.bytes(), 2 * kMiB);
    constexpr std::uint64_t kPage = 4096;
    EXPECT_GE(geometry.bytes(), 2 * kMiB - geometry.large_bytes - geometry.small_bytes - kPage);
    EXPECT_GT(geometry.small_slots, channels);
    EXPECT_GT(geometry.large_slots, channels);
    // Rings and slots are adjacent, without gaps.
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      EXPECT_EQ(geometry.ring_offset(channel + 1) - geometry.ring_offset(channel),
                kEntries * sizeof(Entry));
    }
    for (std::uint32_t slot = 0; slot < geometry.slots(); ++slot) {
      // The large slots begin at a page boundary.
      const std::uint64_t end = geometry.slot_offset(slot) + geometry.slot_bytes(slot);
      const bool is_last = slot + 1 == geometry.small_slots;
      EXPECT_EQ(geometry.slot_offset(slot + 1), is_last ? (end + kPage - 1) / kPage * kPage : end);
    }
  }
}

TEST(ShmSize, IsThatOfTheSegmentAndKeepsToTheBudget) {
  for (const std::uint32_t ranks : {2U, 3U, 5U, 8U}) {
    const auto size = value_of(shm_size({.endpoints = ranks - 1}));
    EXPECT_LE(size.bytes, 2 * kMiB);
    EXPECT_GT(size.bytes, kMiB) << "most of the memory is used";
    EXPECT_EQ(size.bytes, plan_geometry(ranks - 1, 0)->bytes());
    EXPECT_EQ(size.slot_bytes, 64U << 10);
  }
  EXPECT_LE(shm_size({.endpoints = 7, .bytes = kMiB / 2})->bytes, kMiB / 2);
  EXPECT_EQ(shm_size({.endpoints = 7, .bytes = 16 << 10}).code(), Code::exhausted);
}

TEST(ShmGeometry, SaysWhatIsMissing) {
  const auto geometry = plan_geometry(64, kMiB / 2);
  EXPECT_THAT(geometry, fails_as(Code::exhausted, "524288 bytes", "64 channels"));
  EXPECT_EQ(plan_geometry(0, kMiB).code(), Code::exhausted);
  EXPECT_EQ(make_shm({.endpoints = 1 << 20}).code(), Code::exhausted);
}

// The limit on file sizes also applies to shared memory, and the system would end the process with
// SIGXFSZ.
TEST(ShmSize, BeyondTheLimitOfFilesIsAnError) {
  Status transport, allocation;
  {
    const test::FileSizeLimit limit(1000 << 10);
    transport = make_shm({}).status();
    allocation = allocate_shared(kMiB).status();
  }
  for (const Status& status : {transport, allocation}) {
    EXPECT_THAT(status, fails_as(Code::exhausted, "1024000 bytes: raise ulimit -f"));
  }
  EXPECT_TRUE(make_shm({}));
}

/// Copies slots in the way that `choice` selects. `into` and `past` are the times of a copy
/// with ordinary stores and with non-temporal stores.
void copy_slots(CacheChoice& choice, int slots, float into, float past) {
  for (int i = 0; i < slots; ++i) {
    const bool is_past = choice.is_non_temporal() != choice.is_trial();
    choice.learn(is_past, is_past ? past : into);
  }
}

TEST(ShmCacheChoice, FollowsTheReceiverFromNearToFarAndBack) {
  CacheChoice choice;
  EXPECT_FALSE(choice.is_non_temporal());
  for (int round = 0; round < 3; ++round) {
    copy_slots(choice, 1000, 0.10F, 0.06F);
    EXPECT_FALSE(choice.is_non_temporal()) << "the receiver reads faster from a cache";
    copy_slots(choice, 100, 0.45F, 0.08F);
    EXPECT_TRUE(choice.is_non_temporal());
    copy_slots(choice, 1000, 0.45F, 0.08F);
    EXPECT_TRUE(choice.is_non_temporal());
  }
  copy_slots(choice, 100, 0.10F, 0.08F);
  EXPECT_FALSE(choice.is_non_temporal());
}

TEST(ShmCacheChoice, IsNotMovedByInterruptions) {
  CacheChoice choice;
  for (int i = 0; i < 10'000; ++i) {
    const bool is_past = choice.is_non_temporal() != choice.is_trial();
    choice.learn(is_past, i % 5 == 0 ? 50.0F : 0.1F);
    ASSERT_FALSE(choice.is_non_temporal());
  }
}

TEST(ShmCacheChoice, WantsTimesOfAllSlotsUntilBothWaysAreKnownAndThenOfSome) {
  CacheChoice choice;
  int timed = 0;
  for (int i = 0; i < 1600; ++i) {
    const bool is_past = choice.is_non_temporal() != choice.is_trial();
    if (!choice.wants_time()) continue;
    choice.learn(is_past, 0.1F);
    ++timed;
    ASSERT_TRUE(i > 50 || timed == i + 1);
  }
  EXPECT_GT(timed, 100);
  EXPECT_LT(timed, 200);
}

/// Copies slots, and reports the time of a copy only if `choice` wants it. Returns the number of
/// slots after which `choice` has changed.
int slots_until(bool non_temporal, CacheChoice& choice, float into, float past) {
  constexpr int kMost = 1000;
  for (int i = 0; i < kMost; ++i) {
    if (choice.is_non_temporal() == non_temporal) return i;
    const bool is_trial = choice.is_trial();
    const bool is_past = choice.is_non_temporal() != is_trial;
    if (is_trial || choice.wants_time()) choice.learn(is_past, is_past ? past : into);
  }
  return kMost;
}

TEST(ShmCacheChoice, FollowsTheReceiverByFewTimes) {
  CacheChoice choice;
  for (int round = 0; round < 3; ++round) {
    EXPECT_LE(slots_until(true, choice, 0.45F, 0.08F), 120) << round;
    EXPECT_LE(slots_until(false, choice, 0.10F, 0.08F), 64) << round;
    // In this state, all slots are timed, so a change back is detected at once.
    EXPECT_LE(slots_until(true, choice, 0.45F, 0.08F), 7) << round;
    EXPECT_LE(slots_until(false, choice, 0.10F, 0.08F), 64) << round;
    EXPECT_EQ(slots_until(true, choice, 0.10F, 0.08F), 1000) << "near receivers stay near";
  }
}

TEST(ShmCacheChoice, WantsNoTimesOnceSettled) {
  CacheChoice settled(ShmWrites::non_temporal);
  EXPECT_FALSE(settled.wants_time());
}

TEST(ShmCacheChoice, TriesTheOtherWaySeldom) {
  CacheChoice choice;
  copy_slots(choice, 1000, 0.45F, 0.08F);
  int tried = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool is_past = choice.is_non_temporal() != choice.is_trial();
    choice.learn(is_past, is_past ? 0.08F : 0.45F);
    tried += is_past ? 0 : 1;
  }
  EXPECT_GT(tried, 0);
  EXPECT_LT(tried, 20);
}

TEST(ShmSlotPool, ChannelThatTakesAllLeavesOneToEachOfTheOthers) {
  constexpr std::uint32_t kChannels = 3;
  const Geometry geometry = *plan_geometry(kChannels, kMiB);
  SlotPool pool(geometry);
  std::set<std::uint32_t> taken;
  while (const auto slot = pool.acquire(0, geometry.large_bytes)) taken.insert(*slot);
  EXPECT_EQ(taken.size(), geometry.large_slots - (kChannels - 1));
  for (const std::uint32_t channel : {1U, 2U}) {
    const auto slot = pool.acquire(channel, geometry.large_bytes);
    ASSERT_TRUE(slot);
    EXPECT_TRUE(taken.insert(*slot).second) << "acquired twice";
    EXPECT_FALSE(pool.acquire(channel, geometry.large_bytes));
  }
  EXPECT_TRUE(pool.acquire(1, 1)) << "all slots of the other size are free";
  // A slot that was released is available to any sender.
  const std::uint32_t freed = *taken.begin();
  pool.release(freed);
  EXPECT_EQ(pool.acquire(2, geometry.large_bytes), std::optional(freed));
}

TEST(ShmSegment, IsWrittenByItsOwnerAlone) {
  const Nonce nonce{1, 2};
  auto segment = value_of(Segment::create(*plan_geometry(1, kMiB), nonce));
  EXPECT_NE(ftruncate(segment.fd(), 0), 0) << "no peer can shrink the memory";
  void* writable =
      mmap(nullptr, segment.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd(), 0);
  EXPECT_EQ(writable, MAP_FAILED);
  if (writable != MAP_FAILED) munmap(writable, segment.bytes());

  auto seen = value_of(Segment::open(UniqueFd(dup(segment.fd())), nonce));
  EXPECT_EQ(seen.geometry(), segment.geometry());
  std::memset(segment.slot(0), 7, 16);
  EXPECT_EQ(seen.slot(0)[15], std::byte{7});
}

TEST(ShmSegment, OfAnotherNonceOrOfNobodyIsRefused) {
  const auto segment = value_of(Segment::create(*plan_geometry(1, kMiB), {1, 2}));
  EXPECT_EQ(Segment::open(UniqueFd(dup(segment.fd())), {1, 3}).code(), Code::mismatch);
  EXPECT_EQ(Segment::open(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), {1, 2}).code(),
            Code::mismatch);
  EXPECT_EQ(Segment::open(UniqueFd(), {1, 2}).code(), Code::mismatch);
}

/// Generates the length and the bytes of each message of a run.
class Traffic {
 public:
  explicit Traffic(std::uint64_t seed) : random_(seed) {}

  std::vector<std::byte> next() {
    constexpr std::array<std::uint64_t, 4> kMost{kInlineBytes, 4096, 20'000, 100'000};
    const std::uint64_t most = kMost[random_() % 16 == 0 ? 3 : random_() % 3];
    std::vector<std::byte> message(random_() % (most + 1));
    auto value = static_cast<std::uint8_t>(random_());
    for (std::byte& byte : message) byte = std::byte{value += 7};
    return message;
  }

 private:
  std::mt19937_64 random_;
};

/// Checks that the outcomes of one end are successes, and subtracts their number from `under_way`.
void settle(Outcomes& outcomes, std::size_t& under_way) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, Code::ok);
  under_way -= outcomes.size();
  outcomes.clear();
}

/// Both ends of a channel. With little memory, rings and slots are full most of the time.
struct Channel {
  explicit Channel(std::uint64_t bytes = 160 << 10) : geometry(*plan_geometry(1, bytes)) {
    outgoing.open(Owner(ours, -1), ours.credit(0));
  }

  Geometry geometry;
  Segment theirs = value_of(Segment::create(geometry, {1, 2}));
  Segment ours = value_of(Segment::create(geometry, {3, 4}));
  SlotPool slots{geometry};
  Outcomes sent, received;
  Outgoing outgoing{0, theirs, slots, sent};
  Matcher matcher;
  bool must_poll_socket = false;
  /// A peer that shares no memory, and whose process may not be read.
  PeerMemory memory{must_poll_socket};
  std::vector<PeerRequest> requests;
  Incoming incoming{0,       theirs,   0,       Owner(theirs, -1), memory, ours.credit(0),
                    matcher, received, requests};
};

TEST(ShmChannel, HandsOverEveryMessageWholeAndInOrder) {
  constexpr int kMessages = test::kHasThreadSanitizer ? 4000 : 20'000;
  constexpr std::uint64_t kSeed = 20261122;
  constexpr Tag kTag = 5;
  Channel channel;
  std::thread sender([&outgoing = channel.outgoing, &outcomes = channel.sent] {
    Traffic traffic(kSeed);
    for (int i = 0; i < kMessages; ++i) {
      const auto message = traffic.next();
      Operation operation;
      std::size_t under_way =
          outgoing.send(kTag, {message.data(), message.size()}, operation) == Posted::pending;
      for (; under_way > 0; settle(outcomes, under_way)) {
        if (outgoing.pump() == 0) std::this_thread::yield();
      }
    }
    while (!outgoing.is_flushed()) outgoing.pump();
    outgoing.close(true);
    while (outgoing.has_work()) outgoing.pump();
  });

  Outcomes& outcomes = channel.received;
  Matcher& matcher = channel.matcher;
  Incoming& incoming = channel.incoming;
  Traffic traffic(kSeed);
  std::vector<std::byte> got(100'000);
  std::mt19937_64 random(1);
  for (int i = 0; i < kMessages; ++i) {
    const auto expected = traffic.next();
    // Some messages arrive before their receive is posted.
    if (random() % 2 == 0) incoming.drain();
    Operation operation;
    const Receive receive{kTag, kExactMatch, {got.data(), got.size(), {}}, &operation, nullptr};
    if (Arrived* arrived = matcher.find_arrived(kTag, kExactMatch); arrived == nullptr) {
      matcher.post(receive);
    } else if (arrived->is_stream) {
      incoming.match(arrived->stream.id, receive);
      matcher.drop(*arrived);
    } else {
      outcomes.push_back(copy_out(receive, kTag, arrived->payload.data(), arrived->bytes));
      matcher.drop(*arrived);
    }
    while (outcomes.empty()) {
      if (incoming.drain() == 0) std::this_thread::yield();
    }
    ASSERT_EQ(outcomes.size(), 1U);
    ASSERT_EQ(outcomes[0].code, Code::ok);
    ASSERT_EQ(outcomes[0].bytes, expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got.begin())) << "message " << i;
    outcomes.clear();
  }
  sender.join();
  EXPECT_TRUE(incoming.drain() > 0 || !incoming.has_entry()) << "the end";
}

TEST(ShmChannel, StreamsThatNobodyWantsHoldUpNobody) {
  Channel channel;
  const std::vector<std::byte> large(100'000);
  Operation first, second;
  ASSERT_EQ(channel.outgoing.send(1, {large.data(), large.size()}, first), Posted::pending);
  channel.incoming.drain();
  channel.incoming.abandon();
  while (channel.sent.empty()) {
    ASSERT_GT(channel.outgoing.pump() + channel.incoming.drain(), 0U) << "stuck";
  }
  EXPECT_EQ(channel.sent[0].operation, &first);
  EXPECT_EQ(channel.sent[0].code, Code::ok);

  // After close(), nothing is received and nothing is sent.
  channel.outgoing.close(true);
  EXPECT_FALSE(channel.outgoing.is_open());
  ASSERT_EQ(channel.outgoing.send(1, {large.data(), 8}, second), Posted::done);
  EXPECT_EQ(second.code, Code::peer_lost);
  channel.incoming.drain();
  EXPECT_FALSE(channel.incoming.has_entry());
  EXPECT_TRUE(channel.received.empty());
}

TEST(ShmChannel, WhatWasWithdrawnWhileItWasReadIsLost) {
  constexpr std::uint64_t kNone = 0, kOfOthers = ~bit_of(kStreams / 2), kAll = ~std::uint64_t{0};
  // A message larger than a slot gets the first stream number of the second half.
  for (const std::uint64_t withdrawn : {kNone, kOfOthers, bit_of(kStreams / 2), kAll}) {
    SCOPED_TRACE(withdrawn);
    const bool is_withdrawn = (withdrawn & bit_of(kStreams / 2)) != 0;
    Channel channel;
    const auto nonce = reinterpret_cast<std::uintptr_t>(&channel.theirs.header().nonce);
    channel.memory.set_process(getpid(), nonce, {1, 2});
    const std::vector<std::byte> large(3 << 20, std::byte{1});
    std::vector<std::byte> got(large.size());
    Operation sending, receiving;
    channel.matcher.post({1, kExactMatch, {got.data(), got.size(), {}}, &receiving, nullptr});
    const Location at{Location::Where::process, 0, reinterpret_cast<std::uintptr_t>(large.data())};
    ASSERT_EQ(channel.outgoing.send(1, {large.data(), large.size(), {}, at}, sending),
              Posted::pending);
    channel.incoming.drain();
    ASSERT_TRUE(channel.incoming.is_fetching());
    // The stream is withdrawn before the receiver can know this from an entry.
    channel.theirs.withdrawal(0).withdrawn.store(withdrawn);
    while (channel.incoming.is_fetching()) channel.incoming.drain();
    ASSERT_EQ(channel.received.size(), 1U);
    EXPECT_EQ(channel.received[0].code, !is_withdrawn       ? Code::ok
                                        : withdrawn == kAll ? Code::peer_lost
                                                            : Code::cancelled);
    EXPECT_EQ(got == large, true) << "the whole message was read";
    channel.outgoing.pump();
    EXPECT_EQ(channel.sent.size(), 1U);
  }
}

TEST(ShmChannel, WhatCannotBeReadWhereItLiesComesThroughSlots) {
  const std::vector<std::byte> large(100'000, std::byte{7});
  const auto address = reinterpret_cast<std::uintptr_t>(large.data());
  for (const Location& at :
       {Location{Location::Where::process, 0, address}, Location{Location::Where::shared, 5, 0},
        Location{static_cast<Location::Where>(99), 0, 0}}) {
    SCOPED_TRACE(static_cast<int>(at.where));
    Channel channel;
    std::vector<std::byte> got(large.size());
    Operation sending, receiving;
    channel.matcher.post({1, kExactMatch, {got.data(), got.size(), {}}, &receiving, nullptr});
    ASSERT_EQ(channel.outgoing.send(1, {large.data(), large.size(), {}, at}, sending),
              Posted::pending);
    for (int round = 0; round < 100; ++round) channel.incoming.drain(), channel.outgoing.pump();
    ASSERT_EQ(channel.received.size(), 1U);
    EXPECT_EQ(channel.received[0].code, Code::ok);
    EXPECT_EQ(got, large);
    EXPECT_EQ(channel.sent.size(), 1U);
    EXPECT_EQ(channel.must_poll_socket, at.where == Location::Where::shared)
        << "it may wait at the socket";
  }
}

TEST(ShmChannel, EntriesThatCannotBeTrueEndIt) {
  for (int lie = 0; lie < 6; ++lie) {
    SCOPED_TRACE(lie);
    Channel channel(kMiB);
    Entry& entry = channel.theirs.ring(0)[0];
    entry.kind = lie < 2 ? EntryKind::slotted : EntryKind::fragment;
    if (lie == 0) entry.slot = static_cast<std::uint16_t>(channel.geometry.slots());
    if (lie == 1) entry.size_and_check = channel.geometry.small_bytes + 1;
    if (lie == 2) entry.id = kStreams;
    if (lie == 3) entry.size_and_check = 1;  // It refers to a stream that was not announced.
    if (lie == 4) entry.kind = static_cast<EntryKind>(99);
    if (lie == 5) {
      entry.kind = EntryKind::eager;
      entry.size_and_check = kInlineBytes + 1;
    }
    entry.turn.store(turn_of(0), std::memory_order_release);
    channel.theirs.ring(0)[1].turn.store(turn_of(0), std::memory_order_release);
    channel.incoming.drain();
    EXPECT_FALSE(channel.incoming.has_entry()) << "entries after a wrong one are ignored";
    EXPECT_TRUE(channel.received.empty());
    EXPECT_EQ(channel.matcher.find_arrived(0, kExactMatch), nullptr);
  }
}

/// Calls progress() of both transports so often that a message on a socket is certainly read.
void look_around(Transport& a, Transport& b) {
  for (int round = 0; round < 200; ++round) a.progress(), b.progress();
}

TEST(ShmConnectState, IsOfTwoThatConnectToEachOther) {
  auto a = *make_shm({}), b = *make_shm({});
  const EndpointId to_b = *a->connect(b->address());
  look_around(*a, *b);
  EXPECT_EQ(a->connect_state(to_b), ConnectState::waiting) << "b has not connected";
  const EndpointId to_a = *b->connect(a->address());
  look_around(*a, *b);
  EXPECT_EQ(a->connect_state(to_b), ConnectState::complete);
  EXPECT_EQ(b->connect_state(to_a), ConnectState::complete);
  a->close(to_b);
  EXPECT_EQ(a->connect_state(to_b), ConnectState::failed);
  b->close(to_a);
}

TEST(ShmConnectState, FailsWhereNobodyIs) {
  auto a = *make_shm({}), b = *make_shm({});
  const std::vector<std::byte> address(b->address().begin(), b->address().end());
  b.reset();
  const EndpointId nobody = *a->connect(address);
  EXPECT_EQ(a->connect_state(nobody), ConnectState::failed);
}

TEST(ShmConnectState, OfMoreThanThereIsRoomForIsLogged) {
  const std::string path = testing::TempDir() + "shm_meeting." + std::to_string(getpid());
  auto logger = value_of(Logger::open({LogLevel::warn, path}, {}));
  auto a = *make_shm({.endpoints = 1}, logger);
  auto b = *make_shm({}), c = *make_shm({});
  ASSERT_TRUE(b->connect(a->address()).is_ok());
  ASSERT_TRUE(c->connect(a->address()).is_ok());
  a->progress();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("there is room for 1 peers, and all places are taken"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace xylem::transport::shm
