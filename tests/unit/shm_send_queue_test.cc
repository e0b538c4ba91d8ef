// SPDX-License-Identifier: Apache-2.0
//
// The order in which shared memory sends waiting messages, and the ids of announced messages.
#include "shm/outgoing_streams.h"
#include "shm/segment.h"
#include "shm/send_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <list>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kOpen = 2, kHeld = 3;

/// A SendQueue, and the numbers of the messages that have begun. The size of a message is its
/// number.
class Queue {
 public:
  void push(Tag tag, bool fits_slot, std::uint64_t holds) {
    const std::uint64_t number = pushed_[tag].size() + 1;
    pushed_[tag].push_back(number);
    Sending sending{&operations_.emplace_back(), {nullptr, number}, tag, fits_slot};
    if (queue.has_unbegun() || is_hold(holds)) return queue.push(sending, holds);
    begun[tag].push_back(number);
  }
  /// Begins messages if `begin` allows it.
  void pump(std::uint64_t holds, auto begin) {
    queue.pump(
        [&](Sending& sending, bool is_requested) {
          const Begun result = begin(sending, is_requested);
          if (result == Begun::ok) begun[sending.tag].push_back(sending.message.bytes);
          return result;
        },
        [=] { return is_hold(holds); });
  }
  bool has_begun_all() const { return begun == pushed_; }
  void expect_order() const {
    for (const auto& [tag, numbers] : begun) {
      for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i + 1);
    }
  }

  Outcomes outcomes;
  SendQueue queue{outcomes};
  std::map<Tag, std::vector<std::uint64_t>> begun;

 private:
  std::map<Tag, std::vector<std::uint64_t>> pushed_;
  std::list<Operation> operations_;
};

Begun well(const Sending& /*sending*/, bool /*is_requested*/) { return Begun::ok; }

TEST(ShmSendQueue, EqualTagsBeginInOrderHoweverMessagesWait) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto has_luck = [&](unsigned of) { return random() % of == 0; };
    Queue queue;
    std::uint64_t holds = kOpen;
    for (int step = 0; step < 200; ++step) {
      if (has_luck(20)) ++holds;
      if (is_hold(holds) && has_luck(3)) {
        const Tag mask = has_luck(4) ? Tag{1} : kExactMatch;
        queue.queue.request({random() % 4, mask}, holds);
      }
      queue.push(random() % 4, has_luck(2), holds);
      if (!has_luck(3)) continue;
      queue.pump(holds, [&](const Sending& sending, bool) {
        if (!sending.fits_slot && has_luck(3)) return Begun::no_stream_id;
        return has_luck(5) ? Begun::no_room : Begun::ok;
      });
      queue.expect_order();
    }
    queue.pump(kOpen, well);
    EXPECT_TRUE(queue.has_begun_all());
  }
}

TEST(ShmSendQueue, AMessageWithoutAStreamIdIsOvertakenByOtherTagsOnly) {
  Queue queue;
  queue.push(0, true, kHeld);
  for (const Tag tag : {1, 2}) {
    queue.push(tag, false, kOpen);
    queue.push(tag, true, kOpen);
  }
  queue.push(3, true, kOpen);
  queue.pump(kOpen, [](const Sending& sending, bool) {
    return sending.fits_slot ? Begun::ok : Begun::no_stream_id;
  });
  EXPECT_TRUE(queue.begun[1].empty() && queue.begun[2].empty());
  EXPECT_EQ(queue.begun[3].size(), 1U);
  EXPECT_TRUE(queue.queue.is_reordered());
  queue.pump(kOpen, well);
  EXPECT_TRUE(queue.has_begun_all());
}

TEST(ShmSendQueue, DuringAHoldOnlyRequestedMessagesBegin) {
  Queue queue;
  queue.queue.request({1, kExactMatch}, kHeld);
  for (const Tag tag : {1, 1, 2, 3}) queue.push(tag, true, kHeld);
  queue.queue.request({3, kExactMatch}, kHeld);
  queue.pump(kHeld, well);
  EXPECT_EQ(queue.begun[1].size(), 1U) << "one request is for one message";
  EXPECT_TRUE(queue.begun[2].empty());
  EXPECT_EQ(queue.begun[3].size(), 1U);
  // A request counts only during the hold in which it was made.
  queue.queue.request({4, kExactMatch}, kHeld);
  queue.push(4, true, kHeld + 2);
  queue.pump(kHeld + 2, well);
  EXPECT_TRUE(queue.begun[4].empty());
}

TEST(ShmSendQueue, ARequestedMessageWithoutRoomBlocksAllOthers) {
  Queue queue;
  for (const Tag tag : {1, 2}) queue.push(tag, true, kHeld);
  queue.queue.request({2, kExactMatch}, kHeld);
  for (const Begun begun : {Begun::no_room, Begun::no_stream_id}) {
    queue.pump(kOpen,
               [=](const Sending&, bool is_requested) { return is_requested ? begun : Begun::ok; });
    EXPECT_TRUE(queue.begun[1].empty());
  }
}

TEST(ShmSendQueue, AMessageCompletesWhenNoDeviceCopiesItAnyMore) {
  Outcomes outcomes;
  SendQueue queue(outcomes);
  Operation operation;
  Sending sending{&operation};
  sending.copies = 1;
  queue.add_begun(sending);
  const auto found = queue.find(operation);
  ASSERT_TRUE(found);
  const SendQueue::Position at = *found;
  queue.complete(at, Code::cancelled);
  EXPECT_TRUE(outcomes.empty());
  EXPECT_TRUE(queue.has(Sending::Stage::copying));
  queue.complete_all(Code::peer_lost);
  EXPECT_TRUE(outcomes.empty()) << "the device still reads its memory";
  at->copies = 0;
  queue.complete(at, at->code);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].code, Code::cancelled);
  EXPECT_TRUE(queue.is_empty());
  EXPECT_FALSE(queue.find(operation));
}

TEST(ShmStreams, IdsOfRequestedMessagesAreNotUsedByOthers) {
  Withdrawal withdrawal;
  OutgoingStreams streams(withdrawal);
  std::set<std::uint8_t> ids;
  const auto acquire_all = [&](bool fits_slot, bool is_requested) {
    const std::size_t before = ids.size();
    while (streams.has_id(fits_slot, is_requested)) {
      EXPECT_TRUE(ids.insert(streams.acquire_id(fits_slot)).second);
    }
    return ids.size() - before;
  };
  EXPECT_EQ(acquire_all(false, false), kStreams / 4);
  EXPECT_EQ(acquire_all(false, true), kStreams / 4);
  EXPECT_EQ(acquire_all(true, false), kStreams / 2);
}

TEST(ShmStreams, AWithdrawnIdIsFreeOnceTheReceiverHasFinished) {
  const Geometry geometry = *plan_geometry(1, 160 << 10);
  auto ours = Segment::create(geometry, {1, 2});
  ASSERT_TRUE(ours);
  SlotPool slots(geometry);
  OutgoingRing ring(0, *ours, slots);
  Credit credit;
  ring.open(Owner(), credit);
  OutgoingStreams streams(ours->withdrawal(0));
  const auto& withdrawn = ours->withdrawal(0).withdrawn;
  const auto fragmented = streams.acquire_id(false), fetched = streams.acquire_id(false);
  const std::uint64_t both = bit_of(fragmented) | bit_of(fetched);
  for (const std::uint8_t id : {fragmented, fetched}) streams.withdraw(id);
  EXPECT_EQ(withdrawn.load(), both);
  // The receiver has fetched one of the two messages, so only the other must be announced in the
  // ring as withdrawn.
  credit.fetched.store(bit_of(fetched));
  credit.granted.store(bit_of(fetched));
  EXPECT_EQ(streams.pump_withdrawn(ring), 2U);
  EXPECT_EQ(ours->ring(0)[0].kind, EntryKind::withdrawn);
  EXPECT_EQ(ours->ring(0)[0].id, fragmented);
  EXPECT_EQ(ring.unread(), 1U);
  EXPECT_EQ(withdrawn.load(), bit_of(fragmented));
  EXPECT_EQ(streams.pump_withdrawn(ring), 0U) << "the receiver has not finished";
  EXPECT_EQ(streams.acquire_id(false), fetched);
  credit.granted.store(both);
  EXPECT_EQ(streams.pump_withdrawn(ring), 1U);
  EXPECT_EQ(withdrawn.load(), 0U);
  EXPECT_FALSE(streams.has_withdrawn());
  EXPECT_EQ(streams.acquire_id(false), fragmented);
}

}  // namespace
}  // namespace xylem::transport::shm
