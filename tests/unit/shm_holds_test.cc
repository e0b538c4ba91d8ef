// SPDX-License-Identifier: Apache-2.0
//
// Shared memory stores only a limited amount of messages without a receive. They never block
// messages that have a receive.
#include "shm/hold.h"
#include "support/sanitizer.h"
#include "unit/transport_fixture.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace xylem::transport::testing {
namespace {

constexpr std::uint64_t kSlot = 64 << 10;

/// Two transports that are connected in both directions.
class ShmHolds : public ::testing::Test {
 protected:
  void SetUp() override {
    a = make();
    b = make();
    ASSERT_TRUE(a && b);
    to_b = *a->connect(b->address());
    to_a = *b->connect(a->address());
    ASSERT_TRUE(both_drive([&] {
      return a->connect_state(to_b) == ConnectState::complete &&
             b->connect_state(to_a) == ConnectState::complete;
    }));
  }
  void TearDown() override {
    a->close(to_b);
    b->close(to_a);
    settle({a.get(), b.get()});
  }
  static std::unique_ptr<Transport> make() {
    auto made = make_shm({.endpoints = 1}, Logger());
    return made ? std::move(*made) : nullptr;
  }
  template <typename Condition>
  bool both_drive(Condition condition) {
    return drive({a.get(), b.get()}, condition);
  }
  static std::size_t ended(const std::vector<Tracked>& operations) {
    return static_cast<std::size_t>(std::ranges::count_if(
        operations, [](const Tracked& operation) { return operation.ended(); }));
  }

  std::unique_ptr<Transport> a, b;
  EndpointId to_b = 0, to_a = 0;
};

TEST_F(ShmHolds, LittleIsKeptOfWhatNobodyReceives) {
  for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{4096}, kSlot, 4 * kSlot}) {
    const std::uint64_t each = kNodeBytes + (bytes > kSlot ? shm::kAnnouncedBytes : bytes);
    // Includes the messages that are still in the ring.
    const std::size_t most = shm::kMostKept / each + 2 * 64 + 2;
    const std::size_t count = 2 * most;
    std::vector<Tracked> sent(count), received(count);
    std::vector<std::vector<std::byte>> sources, targets(count, std::vector<std::byte>(bytes));
    for (std::size_t i = 0; i < count; ++i) {
      sources.push_back(pattern(bytes, i));
      send(*a, to_b, i, sources[i].data(), bytes, sent[i]);
    }
    settle({a.get(), b.get()});
    EXPECT_LE(ended(sent), most) << bytes;
    EXPECT_GE(ended(sent), bytes > kSlot ? 0 : shm::kMostKept / each / 2) << bytes;
    // Receives in reverse order, so each received message is behind all stored messages.
    for (std::size_t i = count; i-- > 0;) {
      recv(*b, i, targets[i].data(), bytes, received[i]);
      ASSERT_TRUE(both_drive([&] { return received[i].ended(); })) << bytes << " " << i;
      ASSERT_EQ(received[i].code, Code::ok);
      ASSERT_EQ(targets[i], sources[i]);
    }
    ASSERT_TRUE(both_drive([&] { return ended(sent) == count; }));
  }
}

// During a hold, the sender sends one message for each posted receive. If take_view() took this
// message, the receive would wait forever.
TEST_F(ShmHolds, AMessageThatAReceiveHasAskedForIsNotTakenAsAView) {
  constexpr Tag kUnreceived = 1, kWanted = 2;
  constexpr std::uint64_t kBytes = 4096;
  const auto source = pattern(kBytes, 0);
  std::vector<Tracked> sent(2 * shm::kMostKept / kBytes);
  for (Tracked& one : sent) send(*a, to_b, kUnreceived, source.data(), kBytes, one);
  settle({a.get(), b.get()});
  ASSERT_LT(ended(sent), sent.size()) << "no hold has begun";
  std::uint64_t value = 7, got = 0;
  Tracked wanted, received;
  send(*a, to_b, kWanted, reinterpret_cast<std::byte*>(&value), sizeof value, wanted);
  recv(*b, kWanted, reinterpret_cast<std::byte*>(&got), sizeof got, received);
  b->progress();  // Requests the message.
  a->progress();
  ASSERT_TRUE(drive({a.get()}, [&] { return wanted.ended(); }));
  View view;
  EXPECT_FALSE(b->views()->take_view(to_a, kWanted, kAnySize, view));
  ASSERT_TRUE(both_drive([&] { return received.ended(); }));
  EXPECT_EQ(got, value);
  std::vector<std::byte> target(kBytes);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    Tracked drained;
    recv(*b, kUnreceived, target.data(), kBytes, drained);
    ASSERT_TRUE(both_drive([&] { return drained.ended(); }));
  }
}

TEST_F(ShmHolds, EqualTagsComeInOrderWhateverTheirSizes) {
  std::mt19937 random(7);
  constexpr std::size_t kCount = test::kHasThreadSanitizer ? 500 : 2000, kTags = 5;
  const std::uint64_t sizes[] = {0, 8, 96, 200, 5000, kSlot, kSlot + 1, 5 * kSlot};
  std::vector<Tracked> sent(kCount), received(kCount);
  std::vector<std::vector<std::byte>> sources(kCount), targets(kCount);
  std::vector<std::vector<std::size_t>> by_tag(kTags);
  for (std::size_t i = 0; i < kCount; ++i) {
    sources[i] = pattern(sizes[random() % std::size(sizes)], i);
    const Tag tag = random() % kTags;
    by_tag[tag].push_back(i);
    send(*a, to_b, tag, sources[i].data(), sources[i].size(), sent[i]);
    if (random() % 4 == 0) b->progress();
  }
  std::vector<std::size_t> next(kTags, 0);
  std::vector<std::size_t> waiting;
  for (std::size_t left = kCount; left > 0 || !waiting.empty();) {
    const Tag tag = random() % kTags;
    if (left > 0 && next[tag] < by_tag[tag].size() && waiting.size() < 20) {
      const std::size_t i = by_tag[tag][next[tag]++];
      targets[i].resize(5 * kSlot);
      recv(*b, tag, targets[i].data(), targets[i].size(), received[i]);
      waiting.push_back(i);
      --left;
      continue;
    }
    ASSERT_TRUE(both_drive([&] { return waiting.empty() || received[waiting.front()].ended(); }));
    if (waiting.empty()) continue;
    const std::size_t i = waiting.front();
    waiting.erase(waiting.begin());
    ASSERT_EQ(received[i].code, Code::ok);
    targets[i].resize(received[i].bytes);
    ASSERT_EQ(targets[i], sources[i]) << i;
    targets[i] = {};
  }
  ASSERT_TRUE(both_drive([&] { return ended(sent) == kCount; }));
}

TEST_F(ShmHolds, BothDirectionsMayBeHeldAtOnce) {
  constexpr std::size_t kCount = 100;
  std::vector<Tracked> sent_a(kCount), sent_b(kCount), got_a(kCount), got_b(kCount);
  const auto source = pattern(kSlot, 3);
  std::vector<std::vector<std::byte>> at_a(kCount, source), at_b(kCount, source);
  for (std::size_t i = 0; i < kCount; ++i) {
    send(*a, to_b, i, source.data(), kSlot, sent_a[i]);
    send(*b, to_a, i, source.data(), kSlot, sent_b[i]);
    at_a[i].assign(kSlot, std::byte{0});
    at_b[i].assign(kSlot, std::byte{0});
  }
  settle({a.get(), b.get()});
  EXPECT_LT(ended(sent_a), kCount);
  EXPECT_LT(ended(sent_b), kCount);
  for (std::size_t i = kCount; i-- > 0;) {
    recv(*a, i, at_a[i].data(), kSlot, got_a[i]);
    recv(*b, i, at_b[i].data(), kSlot, got_b[i]);
  }
  ASSERT_TRUE(both_drive(
      [&] { return ended(got_a) + ended(got_b) + ended(sent_a) + ended(sent_b) == 4 * kCount; }));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(at_a[i], source);
    ASSERT_EQ(at_b[i], source);
  }
}

TEST_F(ShmHolds, WhatIsWithheldCanBeCancelled) {
  constexpr std::size_t kCount = 200;
  std::vector<Tracked> sent(kCount);
  auto source = std::make_unique<std::vector<std::byte>>(pattern(kSlot, 3));
  for (std::size_t i = 0; i < kCount; ++i) send(*a, to_b, 1, source->data(), kSlot, sent[i]);
  settle({a.get(), b.get()});
  const std::size_t through = ended(sent);
  ASSERT_LT(through, kCount);
  for (Tracked& operation : sent) {
    if (!operation.ended()) a->cancel(operation);
  }
  ASSERT_TRUE(drive({a.get()}, [&] { return ended(sent) == kCount; }));
  source.reset();
  std::size_t dropped = 0;
  ASSERT_TRUE(both_drive([&] { return (dropped += b->discard(1, kExactMatch)) == through; }));
  // The channel can be used again.
  std::uint64_t value = 7, got = 0;
  Tracked last, received;
  send(*a, to_b, 2, &value, 8, last);
  ASSERT_TRUE(both_drive([&] { return last.ended(); }));
  recv(*b, 2, &got, 8, received);
  ASSERT_TRUE(both_drive([&] { return received.ended(); }));
  EXPECT_EQ(got, 7U);
}

}  // namespace
}  // namespace xylem::transport::testing
