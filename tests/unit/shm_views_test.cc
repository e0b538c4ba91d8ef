// SPDX-License-Identifier: Apache-2.0
//
// Messages that are read in place: in slots, in memory that the sender shares, or in the sender's
// process.
#include "shm/peer_memory.h"
#include "shm/segment.h"
#include "support/outcome.h"
#include "xylem/transport/shared_memory.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Returns the number of mappings of shared memory of this process. Other mappings are not counted:
/// allocators and sanitizers may change them at any time.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:xylem") != std::string::npos ? 1U : 0U;
  return count;
}

/// Two connected transports, and a third one.
class ShmViews : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& transport : transports) transport = *make_shm({.endpoints = 2});
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        if (i != j) to[i][j] = *transports[i]->connect(transports[j]->address());
      }
    }
    drive();
  }
  void drive() {
    for (int round = 0; round < 200; ++round) {
      for (auto& transport : transports) transport->progress();
    }
  }
  static void count(Operation& self) noexcept { ++static_cast<Counted&>(self).ended; }
  struct Counted : Operation {
    Counted() { done = count; }
    int ended = 0;
  };

  std::array<std::unique_ptr<Transport>, 3> transports;
  std::unique_ptr<Transport>&a = transports[0], &b = transports[1], &c = transports[2];
  EndpointId to[3][3] = {};
};

TEST_F(ShmViews, ShowMessagesWhereTheyAre) {
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, kInlineBytes, std::uint64_t{4096}, b->views()->view_bytes()}) {
    for (const bool is_early : {false, true}) {
      SCOPED_TRACE(testing::Message() << bytes << (is_early ? ", unexpected" : ""));
      std::vector<std::byte> source(bytes, std::byte{static_cast<std::uint8_t>(bytes + 1)});
      Counted sent, received;
      if (is_early) {
        ASSERT_EQ(a->send(to[0][1], bytes, {source.data(), bytes, {}}, sent), Posted::done);
        drive();
      }
      const Posted posted = b->views()->recv_view(bytes, {}, received);
      EXPECT_EQ(posted, is_early ? Posted::done : Posted::pending);
      if (!is_early) {
        ASSERT_EQ(a->send(to[0][1], bytes, {source.data(), bytes, {}}, sent), Posted::done);
        drive();
      }
      EXPECT_EQ(received.code, Code::ok);
      ASSERT_EQ(received.bytes, bytes);
      EXPECT_TRUE(std::equal(source.begin(), source.end(), received.view.data));
      b->views()->release(received.view);
    }
  }
}

TEST_F(ShmViews, KeepTheirMessageUntilReleasedWhileOthersPass) {
  std::vector<std::byte> large(b->views()->view_bytes(), std::byte{1});
  Counted viewed, sent;
  b->views()->recv_view(1, {}, viewed);
  a->send(to[0][1], 1, {large.data(), large.size(), {}}, sent);
  drive();
  ASSERT_EQ(viewed.ended, 1);
  std::vector<std::byte> got(large.size());
  for (std::size_t round = 0; round < 200; ++round) {
    std::ranges::fill(large, static_cast<std::byte>(round + 2));
    Counted passing, received;
    b->recv(2, kExactMatch, {got.data(), got.size(), {}}, received, nullptr);
    a->send(to[0][1], 2, {large.data(), large.size(), {}}, passing);
    drive();
    ASSERT_EQ(received.ended, 1) << "round " << round;
    ASSERT_EQ(got, large);
    // No slot after a slot with a view is reused, but there is room for 20 messages.
    if (round < 20) {
      ASSERT_EQ(viewed.view.data[large.size() - 1], std::byte{1});
    }
    if (round == 20) b->views()->release(viewed.view);
  }
}

TEST_F(ShmViews, OfMessagesTooLongAreAMismatch) {
  const std::vector<std::byte> large(b->views()->view_bytes() + 1);
  for (const bool is_early : {false, true}) {
    SCOPED_TRACE(is_early);
    Counted sent, received;
    if (!is_early) b->views()->recv_view(1, {}, received);
    ASSERT_EQ(a->send(to[0][1], 1, {large.data(), large.size(), {}}, sent), Posted::pending);
    drive();
    if (is_early) {
      EXPECT_EQ(b->views()->recv_view(1, {}, received), Posted::pending);
      drive();
    }
    EXPECT_EQ(received.ended, 1);
    EXPECT_EQ(received.code, Code::mismatch);
    EXPECT_EQ(sent.ended, 1) << "the sender is released";
  }
}

TEST_F(ShmViews, OfOneSlotForSeveralReaders) {
  const EndpointId both[] = {to[0][1], to[0][2]};
  for (std::size_t round = 0; round < 100; ++round) {
    Counted received[2];
    b->views()->recv_view(round, {}, received[0]);
    c->views()->recv_view(round, {}, received[1]);
    Reservation room;
    ASSERT_EQ(a->views()->reserve(both, 50'000, room), ReserveResult::reserved)
        << "round " << round;
    std::memset(room.memory, static_cast<int>(round), 50'000);
    for (const EndpointId peer : both) a->views()->commit(peer, round);
    drive();
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(received[i].ended, 1);
      ASSERT_EQ(received[i].view.data[49'999], static_cast<std::byte>(round));
      transports[i + 1]->views()->release(received[i].view);
    }
  }
  EXPECT_EQ(a->traffic(both[0]).bytes, 100U * 50'000);
}

TEST_F(ShmViews, OfAFilledSlotShowWhatWentToItsOtherTarget) {
  const EndpointId both[] = {to[0][1], to[0][2]};
  // There are enough messages for the sender to try both ways of writing a slot, and to choose one.
  for (std::size_t round = 0; round < 500; ++round) {
    const std::size_t bytes = round % 3 == 0 ? 5'000 : 50'000;
    std::vector<std::byte> source(bytes), also(bytes + 1, std::byte{0xa5});
    for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i * 7 + round);
    Counted received[2];
    b->views()->recv_view(round, {}, received[0]);
    c->views()->recv_view(round, {}, received[1]);
    Reservation room;
    ASSERT_EQ(a->views()->reserve(both, bytes, room), ReserveResult::reserved) << "round " << round;
    a->views()->fill(source.data(), {also.data(), round % 2 == 0});
    for (const EndpointId peer : both) a->views()->commit(peer, round);
    drive();
    ASSERT_TRUE(std::equal(source.begin(), source.end(), also.begin())) << round;
    ASSERT_EQ(also.back(), std::byte{0xa5});
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(received[i].ended, 1);
      ASSERT_TRUE(std::equal(source.begin(), source.end(), received[i].view.data)) << round;
      transports[i + 1]->views()->release(received[i].view);
    }
  }
}

TEST_F(ShmViews, ThatNobodyTakesLeaveRoomForTheOther) {
  int placed = 0;
  Reservation room;
  while (a->views()->reserve({&to[0][1], 1}, 50'000, room) == ReserveResult::reserved) {
    room.memory[0] = std::byte{1};
    a->views()->commit(to[0][1], 1);
    ASSERT_LT(++placed, 1000);
  }
  EXPECT_GT(placed, 2);
  ASSERT_EQ(a->views()->reserve({&to[0][2], 1}, 50'000, room), ReserveResult::reserved);
  a->views()->commit(to[0][2], 1);
  EXPECT_EQ(transports[1]->discard(0, 0), 0U);
  drive();
  EXPECT_EQ(b->discard(1, kExactMatch), static_cast<std::size_t>(placed));
  EXPECT_EQ(c->discard(1, kExactMatch), 1U);
}

TEST_F(ShmViews, OfAReceiverThatDiedDoNotKeepTheirSlots) {
  const EndpointId both[] = {to[0][1], to[0][2]};
  Reservation room;
  // Transport c receives all messages. Transport b receives none, and is then destroyed.
  for (int round = 0; round < 3; ++round) {
    while (a->views()->reserve(both, 50'000, room) == ReserveResult::reserved) {
      room.memory[0] = std::byte{1};
      for (const EndpointId peer : both) a->views()->commit(peer, 1);
    }
    a->progress(), c->progress();
    c->discard(1, kExactMatch);
  }
  EXPECT_EQ(a->views()->reserve({&to[0][2], 1}, 50'000, room), ReserveResult::reserved)
      << "its own";
  a->views()->commit(to[0][2], 1);
  b.reset();
  EXPECT_EQ(a->views()->reserve(both, 50'000, room), ReserveResult::use_send);
  a->close(to[0][1]);
  for (int round = 0; round < 200; ++round) a->progress(), c->progress();
  c->discard(1, kExactMatch);
  int placed = 0;
  for (; a->views()->reserve({&to[0][2], 1}, 50'000, room) == ReserveResult::reserved; ++placed) {
    a->views()->commit(to[0][2], 1);
  }
  EXPECT_GT(placed, 10);
  transports[1] = *make_shm({});
}

/// Messages that the receiver reads in the sender's memory: memory of allocate_shared(), or private
/// memory of the sender's process.
class ShmReadable : public ShmViews {
 protected:
  static constexpr std::uint64_t kBytes = 300'000;
  enum class Where { shared, process };

  void SetUp() override {
    ShmViews::SetUp();
    memory = static_cast<std::byte*>(*allocate_shared(kBytes + kBytes));
    fill(memory, 1);
  }
  void TearDown() override {
    if (memory != nullptr) {
      EXPECT_TRUE(free_shared(memory).is_ok());
    }
  }
  static void fill(std::byte* at, int seed) {
    for (std::uint64_t i = 0; i < kBytes; ++i) at[i] = static_cast<std::byte>(seed + i % 251);
  }
  /// Returns the region to send from. For private memory, it is on the heap.
  ConstRegion source(Where where) {
    if (where == Where::shared) return {memory, kBytes, {}, InPlace::shared_only};
    for (auto& transport : transports) transport->views()->pull_from(kBytes);
    heap.assign(memory, memory + kBytes);
    return {heap.data(), kBytes, {}, InPlace::anywhere};
  }
  bool is_whole(const std::byte* at) const { return std::equal(memory, memory + kBytes, at); }

  std::byte* memory = nullptr;
  std::vector<std::byte> heap, got = std::vector<std::byte>(kBytes);
};

TEST_F(ShmReadable, AreReceivedFromThereBeforeAndAfterTheyAreAskedFor) {
  for (const Where where : {Where::shared, Where::process}) {
    for (const bool is_early : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(where) << is_early);
      const ConstRegion from = source(where);
      EXPECT_TRUE(a->views()->is_readable(from));
      std::ranges::fill(got, std::byte{0});
      Counted sent, received;
      if (is_early) {
        ASSERT_EQ(a->send(to[0][1], 1, from, sent), Posted::pending);
        drive();
        EXPECT_EQ(sent.ended, 0) << "the message has not been read yet";
      }
      ASSERT_EQ(b->recv(1, kExactMatch, {got.data(), kBytes, {}}, received), Posted::pending);
      if (!is_early) {
        ASSERT_EQ(a->send(to[0][1], 1, from, sent), Posted::pending);
      }
      // The sender makes no progress meanwhile.
      for (int round = 0; round < 200; ++round) b->progress();
      EXPECT_EQ(received.ended, 1);
      EXPECT_EQ(received.code, Code::ok);
      EXPECT_EQ(received.bytes, kBytes);
      EXPECT_TRUE(is_whole(got.data()));
      EXPECT_EQ(sent.ended, 0);
      drive();
      EXPECT_EQ(sent.ended, 1);
      EXPECT_EQ(sent.code, Code::ok);
    }
  }
}

TEST_F(ShmReadable, AreALaneWhereProcessesAreRead) {
  EXPECT_EQ(a->paths(to[0][1]).size(), 1U);
  (void)source(Where::process);
  const auto lanes = a->paths(to[0][1]);
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[1].transport, "cma");
}

TEST_F(ShmReadable, MayBeToldToLeave) {
  for (const Where where : {Where::shared, Where::process}) {
    ConstRegion from = source(where);
    from.bytes = b->views()->view_bytes();
    for (auto& transport : transports) transport->views()->pull_from(from.bytes);
    from.in_place = where == Where::shared ? InPlace::never : InPlace::shared_only;
    EXPECT_FALSE(a->views()->is_readable(from));
    Counted sent;
    EXPECT_EQ(a->send(to[0][1], 1, from, sent), Posted::done);
    drive();
    EXPECT_EQ(b->discard(1, kExactMatch), 1U);
  }
}

TEST_F(ShmReadable, ThatNobodyTakesHoldUpNothing) {
  // More messages than can be announced at once. The others go through slots.
  constexpr std::size_t kMany = 100;
  const ConstRegion small{memory, 10'000, {}, InPlace::shared_only};
  std::vector<Counted> sent(kMany);
  std::size_t announced = 0;
  for (Counted& one : sent) {
    announced += a->send(to[0][1], 1, small, one) == Posted::pending ? 1U : 0U;
    drive();
  }
  EXPECT_EQ(announced, kStreams / 2);
  // Long messages can still be announced.
  Counted long_sent, received;
  b->recv(2, kExactMatch, {got.data(), kBytes, {}}, received);
  a->send(to[0][1], 2, source(Where::shared), long_sent);
  drive();
  EXPECT_EQ(received.ended, 1);
  EXPECT_EQ(long_sent.ended, 1);
  EXPECT_EQ(b->discard(1, kExactMatch), kMany);
  drive();
}

TEST_F(ShmReadable, AreShownWhereTheyAreIfTheyAreMapped) {
  for (const bool is_early : {false, true}) {
    SCOPED_TRACE(is_early);
    Counted sent, received;
    const ConstRegion from{memory + 64, kBytes - 64, {}, InPlace::shared_only};
    if (is_early) {
      a->send(to[0][1], 1, from, sent);
      drive();
    }
    ASSERT_EQ(b->views()->recv_view(1, {}, received), Posted::pending);
    if (!is_early) a->send(to[0][1], 1, from, sent);
    drive();
    ASSERT_EQ(received.ended, 1);
    ASSERT_EQ(received.bytes, from.bytes);
    ASSERT_NE(received.view.data, nullptr);
    EXPECT_NE(received.view.data, memory + 64) << "another mapping of the same memory";
    memory[64] = std::byte{77};
    EXPECT_EQ(received.view.data[0], std::byte{77});
    EXPECT_EQ(sent.ended, 0);
    EXPECT_TRUE(b->views()->release(received.view));
    drive();
    EXPECT_EQ(sent.ended, 1);
  }
}

TEST_F(ShmReadable, AreBroughtWhereNoViewCanBe) {
  Counted sent, received;
  ASSERT_EQ(b->views()->recv_view(1, {got.data(), kBytes, {}}, received), Posted::pending);
  a->send(to[0][1], 1, source(Where::process), sent);
  drive();
  ASSERT_EQ(received.ended, 1);
  EXPECT_EQ(received.code, Code::ok);
  EXPECT_EQ(received.view.data, nullptr);
  EXPECT_TRUE(is_whole(got.data()));
  EXPECT_EQ(sent.ended, 1);
}

TEST_F(ShmReadable, OfAnotherSizeThanIsAskedForAreAMismatch) {
  for (const Where where : {Where::shared, Where::process}) {
    Counted sent, received;
    b->recv(1, kExactMatch, {got.data(), kBytes - 1, {}}, received);
    a->send(to[0][1], 1, source(where), sent);
    drive();
    EXPECT_EQ(received.code, Code::mismatch);
    EXPECT_EQ(received.ended, 1);
    EXPECT_EQ(sent.ended, 1) << "the sender is released";
  }
}

TEST_F(ShmReadable, ThatNobodyWantsReleaseTheirSender) {
  for (const Where where : {Where::shared, Where::process}) {
    Counted sent;
    a->send(to[0][1], 1, source(where), sent);
    drive();
    EXPECT_EQ(b->discard(1, kExactMatch), 1U);
    drive();
    EXPECT_EQ(sent.ended, 1);
  }
}

TEST_F(ShmReadable, OfASenderThatGaveUpAreLost) {
  Counted sent, viewed;
  b->views()->recv_view(1, {}, viewed);
  a->send(to[0][1], 1, source(Where::shared), sent);
  drive();
  ASSERT_EQ(viewed.ended, 1);
  a->close(to[0][1]);
  a->progress();
  EXPECT_EQ(sent.ended, 1);
  EXPECT_EQ(sent.code, Code::peer_lost);
  fill(memory, 2);  // The memory belongs to its user again.
  EXPECT_FALSE(b->views()->release(viewed.view));
}

TEST_F(ShmReadable, OfASenderThatGaveUpWhileTheyAreFetchedAreLost) {
  // The message has more than one piece.
  const std::vector<std::byte> large(3 << 20, std::byte{1});
  std::vector<std::byte> target(large.size());
  for (auto& transport : transports) transport->views()->pull_from(kBytes);
  Counted sent, received;
  b->recv(1, kExactMatch, {target.data(), target.size(), {}}, received);
  a->send(to[0][1], 1, {large.data(), large.size(), {}, InPlace::anywhere}, sent);
  while (target[0] == std::byte{0}) b->progress();
  ASSERT_EQ(received.ended, 0);
  a->close(to[0][1]);
  a->progress();
  ASSERT_EQ(sent.ended, 1);
  drive();
  EXPECT_EQ(received.ended, 1);
  EXPECT_EQ(received.code, Code::peer_lost);
}

TEST_F(ShmReadable, HaveArrivedThoughTheirReceiverLeftBeforeTheSenderLooked) {
  for (const Where where : {Where::shared, Where::process}) {
    Counted sent, received;
    auto& receiver = where == Where::shared ? b : c;
    const EndpointId peer = where == Where::shared ? to[0][1] : to[0][2];
    receiver->recv(1, kExactMatch, {got.data(), kBytes, {}}, received);
    a->send(peer, 1, source(where), sent);
    while (received.ended == 0) receiver->progress();
    receiver = *make_shm({});
    a->progress();
    EXPECT_EQ(sent.ended, 1);
    EXPECT_EQ(sent.code, Code::ok);
  }
}

TEST_F(ShmReadable, AreGivenUpByAReceiverThatCloses) {
  Counted sent, received;
  std::vector<std::byte> large(3 << 20, std::byte{1}), target(large.size());
  for (auto& transport : transports) transport->views()->pull_from(kBytes);
  b->recv(1, kExactMatch, {target.data(), target.size(), {}}, received);
  a->send(to[0][1], 1, {large.data(), large.size(), {}, InPlace::anywhere}, sent);
  while (target[0] == std::byte{0}) b->progress();
  b->close(to[1][0]);
  drive();
  EXPECT_EQ(received.ended, 1);
  EXPECT_EQ(received.code, Code::peer_lost);
  EXPECT_EQ(sent.ended, 1) << "the sender's buffer is free";
}

TEST_F(ShmReadable, MemoryThatIsGivenBackIsUnmappedByAll) {
  const std::size_t before = shared_mappings();
  for (int round = 0; round < 20; ++round) {
    auto* fresh = static_cast<std::byte*>(*allocate_shared(kBytes));
    std::memset(fresh, round + 1, kBytes);
    for (const EndpointId peer : {to[0][1], to[0][2]}) {
      Counted sent, received;
      auto& receiver = peer == to[0][1] ? b : c;
      receiver->recv(1, kExactMatch, {got.data(), kBytes, {}}, received);
      a->send(peer, 1, {fresh, kBytes, {}, InPlace::shared_only}, sent);
      drive();
      ASSERT_EQ(received.ended, 1);
      ASSERT_EQ(got[kBytes - 1], static_cast<std::byte>(round + 1));
      ASSERT_EQ(sent.ended, 1);
    }
    ASSERT_TRUE(free_shared(fresh).is_ok());
    drive();
  }
  EXPECT_EQ(shared_mappings(), before);
}

TEST_F(ShmReadable, MemoryOfThoseWhoHaveLeftIsUnmapped) {
  Counted sent, received;
  b->recv(1, kExactMatch, {got.data(), kBytes, {}}, received);
  a->send(to[0][1], 1, source(Where::shared), sent);
  drive();
  ASSERT_EQ(sent.ended, 1);
  const std::size_t before = shared_mappings();
  b->close(to[1][0]);
  for (int round = 0; round < 200; ++round) b->progress();
  EXPECT_EQ(shared_mappings(), before - 1);
}

TEST_F(ShmReadable, MemoryIsMappedAgainAfterBothHaveReconnected) {
  a = *make_shm({.endpoints = 2}), b = *make_shm({.endpoints = 2});
  for (const bool is_again : {false, true}) {
    SCOPED_TRACE(is_again);
    const EndpointId to_b = *a->connect(b->address()), to_a = *b->connect(a->address());
    drive();
    Counted sent, received;
    a->send(to_b, 1, source(Where::shared), sent);
    b->views()->recv_view(1, {}, received);
    drive();
    ASSERT_EQ(received.ended, 1);
    ASSERT_NE(received.view.data, nullptr) << "it is not read where it is";
    memory[0] ^= std::byte{1};
    EXPECT_EQ(received.view.data[0], memory[0]);
    EXPECT_TRUE(b->views()->release(received.view));
    a->close(to_b);
    b->close(to_a);
    drive();
  }
}

TEST_F(ShmViews, RoomThatIsAbandonedIsThereAgain) {
  const EndpointId both[] = {to[0][1], to[0][2]};
  Reservation room;
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(a->views()->reserve(both, 50'000, room), ReserveResult::reserved) << round;
    a->views()->abandon();
  }
  Counted received;
  b->views()->recv_view(1, {}, received);
  drive();
  EXPECT_EQ(received.ended, 0) << "the receive must not end";
  b->cancel(received);
  drive();
}

TEST_F(ShmReadable, MemoryIsRefusedByName) {
  EXPECT_EQ(allocate_shared(0).code(), Code::invalid_argument);
  EXPECT_EQ(allocate_shared(std::uint64_t{1} << 60).code(), Code::exhausted);
  int local = 0;
  EXPECT_THAT(free_shared(&local), fails_as(Code::invalid_argument, "was not allocated here"));
  EXPECT_EQ(free_shared(nullptr).code(), Code::invalid_argument);
  void* const once = *allocate_shared(1);
  EXPECT_TRUE(free_shared(once).is_ok());
  EXPECT_EQ(free_shared(once).code(), Code::invalid_argument);
}

TEST(ShmPeerMemory, OfAnotherProcessThanItSaysIsNotRead) {
  bool must_poll_socket = false;
  const Nonce nonce{1, 2}, other{1, 3};
  const auto at = reinterpret_cast<std::uintptr_t>(&nonce);
  std::array<std::byte, 16> source{std::byte{9}}, target{};
  const auto from = reinterpret_cast<std::uintptr_t>(source.data());
  PeerMemory right(must_poll_socket), wrong(must_poll_socket), nobody(must_poll_socket),
      nowhere(must_poll_socket);
  right.set_process(getpid(), at, nonce);
  ASSERT_TRUE(right.can_pull());
  EXPECT_TRUE(right.pull(target.data(), from, target.size()));
  EXPECT_EQ(target, source);
  EXPECT_FALSE(right.pull(target.data(), 0, target.size())) << "there is no memory at this address";
  wrong.set_process(getpid(), at, other);
  EXPECT_FALSE(wrong.can_pull());
  nobody.set_process(0, at, nonce);
  EXPECT_FALSE(nobody.can_pull());
  nowhere.set_process(getpid(), 8, nonce);
  EXPECT_FALSE(nowhere.can_pull());
  EXPECT_FALSE(nowhere.can_read({Location::Where::process, 0, from}));
}

TEST(ShmPeerMemory, MapsWhatItIsGivenAndNoMore) {
  bool must_poll_socket = false;
  PeerMemory memory(must_poll_socket);
  const auto made = value_of(make_sealed_memory(kMiB));
  EXPECT_EQ(memory.map(1, made.fd, kMiB + 1).code(), Code::mismatch)
      << "reads would go past the end of the memory";
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(memory.map(1, null, 1).code(), Code::mismatch) << "the memory might shrink";
  ASSERT_TRUE(memory.map(1, made.fd, kMiB).is_ok());
  EXPECT_EQ(memory.map(1, made.fd, kMiB).code(), Code::mismatch) << "this number is mapped already";
  const auto shared = [](std::uint32_t allocation, std::uint64_t at) {
    return Location{Location::Where::shared, allocation, at};
  };
  EXPECT_NE(memory.find(shared(1, 0), kMiB), nullptr);
  EXPECT_NE(memory.find(shared(1, kMiB - 1), 1), nullptr);
  EXPECT_EQ(memory.find(shared(1, kMiB - 1), 2), nullptr);
  EXPECT_EQ(memory.find(shared(1, ~std::uint64_t{0}), 2), nullptr);
  EXPECT_EQ(memory.find(shared(2, 0), 1), nullptr);
  memory.hold(shared(1, 0));
  const std::byte* const held = memory.find(shared(1, 0), 1);
  memory.forget(1);
  EXPECT_EQ(memory.find(shared(1, 0), 1), nullptr) << "not for new messages";
  EXPECT_EQ(*held, std::byte{0}) << "still mapped";
  memory.release(shared(1, 0));
}

}  // namespace
}  // namespace xylem::transport::shm
