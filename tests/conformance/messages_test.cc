// SPDX-License-Identifier: Apache-2.0
//
// What send and recv promise beyond their results:
//
// - Messages arrive over every transport, also if they are shorter than the receive's buffer.
// - A message that is longer than its receive fails no other call.
// - A message is transferred while its sender makes no calls.
// - A sender waits for a slow receiver.
// - The notice that a rank has left does not overtake the rank's messages.
#include "support/outcome.h"
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <latch>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Hosts = std::vector<std::uint32_t>;

constexpr std::size_t kSmall = 4000;  ///< Bytes that fit into a header.

RankOptions on_hosts(Hosts hosts) {
  return {.size = static_cast<std::uint32_t>(hosts.size()), .hosts = std::move(hosts)};
}

std::vector<std::uint8_t> pattern(std::size_t number, std::size_t length) {
  std::vector<std::uint8_t> bytes(length);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(number));
  return bytes;
}

constexpr std::size_t kMany = 900;  ///< More messages than a queue in shared memory holds.

void send_many(const Communicator& world, std::uint32_t to, std::size_t length = kSmall) {
  for (std::size_t i = 0; i < kMany; ++i) {
    const auto bytes = pattern(i, length);
    EXPECT_TRUE(world.send(ConstBuffer(bytes.data(), length, DataType::uint8), to, 1).wait());
  }
}

void receive_many(const Communicator& world, std::size_t length = kSmall) {
  for (std::size_t i = 0; i < kMany; ++i) {
    std::vector<std::uint8_t> bytes(length);
    const Work receive = world.recv(Buffer(bytes.data(), length, DataType::uint8), 0, 1);
    EXPECT_TRUE(receive.wait_for(seconds(60))) << "message " << i;
    if (!receive.test()) return;
    EXPECT_EQ(bytes, pattern(i, length));
  }
}

class MessagesOnHosts : public testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Layouts,
                         MessagesOnHosts,
                         testing::Values(Hosts{0, 1},
                                         Hosts{0, 0, 1},
                                         Hosts{0, 0, 0, 1},
                                         Hosts{0, 1, 1, 0, 0},
                                         Hosts{0, 0, 0, 0, 0, 0, 0, 1}));

// A receive waits for a rank of the same host. A later receive, for a message from another host,
// must still be served.
TEST_P(MessagesOnHosts, ComeOverEveryWireInAnyOrderOfReceives) {
  run_ranks(on_hosts(GetParam()), [](const Communicator& world) {
    for (std::uint32_t root = 0; root < world.size(); ++root) {
      auto fresh = value_of(world.duplicate());
      const std::int64_t mine = 100 + world.rank();
      if (world.rank() != root) {
        ASSERT_TRUE(fresh.send(one(mine), root, 5).wait());
        ASSERT_TRUE(fresh.send(one(mine), root, 6).wait());
        continue;
      }
      for (std::uint32_t peer = 0; peer < world.size(); ++peer) {
        if (peer == root) continue;
        std::int64_t got = 0;
        const Work receive = fresh.recv(into(got), peer, 5);
        ASSERT_TRUE(receive.wait_for(seconds(60))) << "from " << peer << " to " << root;
        ASSERT_EQ(got, 100 + peer);
      }
      for (std::uint32_t peer = 1; peer < world.size(); ++peer) {
        std::int64_t got = 0;
        const Work receive = fresh.recv(into(got), std::nullopt, 6);
        ASSERT_TRUE(receive.wait_for(seconds(60))) << "from any to " << root;
        ASSERT_EQ(got, 100 + receive.source());
      }
    }
    ASSERT_TRUE(world.barrier().wait());
  });
}

// At its start, the job measures a link within the host first, and then a link to another host.
TEST_P(MessagesOnHosts, LetTheStartMeasureBothWires) {
  RankOptions options = on_hosts(GetParam());
  options.environment["XYLEM_TUNING"] = "measure";
  options.environment["XYLEM_START_TIMEOUT"] = "50s";
  run_ranks(options, [](const Communicator& world) { EXPECT_TRUE(world.barrier().wait()); });
}

class MessagesOver : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports,
                         MessagesOver,
                         testing::Values("loopback", "shm", "tcp", "ucx-tcp"));

// There are more messages than the transport's queue holds. The rest must be sent while the sender
// makes no calls.
TEST_P(MessagesOver, GoOnWhileTheirSenderDoesNotCall) {
  for (const std::size_t length : {std::size_t{8}, kSmall}) {
    std::latch is_sent(2), is_received(2);
    run_ranks({.transport = GetParam()}, [&](const Communicator& world) {
      if (world.rank() == 0) send_many(world, 1, length);
      is_sent.arrive_and_wait();
      if (world.rank() == 1) receive_many(world, length);
      is_received.arrive_and_wait();
    });
  }
}

// Messages without a matching receive must not block collectives or other messages.
TEST_P(MessagesOver, ThatNobodyReceivesHoldUpNothing) {
  constexpr std::size_t kSmallOnes = 20'000, kLargeOnes = 100, kLarge = 100'000;
  run_ranks({.transport = GetParam()}, [&](const Communicator& world) {
    std::vector<std::uint64_t> small(kSmallOnes);
    std::vector<std::vector<std::uint8_t>> large(kLargeOnes, std::vector<std::uint8_t>(kLarge));
    std::vector<Work> works;
    const auto tag_of = [](std::size_t i) { return static_cast<std::uint32_t>(i); };
    if (world.rank() == 0) {
      for (std::size_t i = 0; i < kLargeOnes; ++i) {
        large[i] = pattern(i, kLarge);
        works.push_back(world.send(std::span<const std::uint8_t>(large[i]), 1, tag_of(i)));
      }
      for (std::size_t i = 0; i < kSmallOnes; ++i) {
        small[i] = i * i;
        works.push_back(world.send(ConstBuffer(&small[i], 1, DataType::uint64), 1, kLargeOnes));
      }
    }
    std::vector<std::int64_t> in(1 << 16, world.rank() + 1), out(in.size());
    ASSERT_TRUE(world.all_reduce(std::span<const std::int64_t>(in), std::span(out)).wait());
    EXPECT_EQ(out.back(), 3);
    if (world.rank() == 1) {
      for (std::size_t i = kLargeOnes; i-- > 0;) {
        ASSERT_TRUE(world.recv(std::span(large[i]), 0, tag_of(i)).wait());
        ASSERT_EQ(large[i], pattern(i, kLarge));
      }
      for (std::size_t i = 0; i < kSmallOnes; ++i) {
        ASSERT_TRUE(world.recv(Buffer(&small[i], 1, DataType::uint64), 0, kLargeOnes).wait());
        ASSERT_EQ(small[i], i * i);
      }
    }
    for (const Work& work : works) ASSERT_TRUE(work.wait());
  });
}

constexpr std::size_t kAnnounced =
    3'000'000;                           ///< Bytes that no transport sends before their receive.
constexpr std::size_t kStored = 30'000;  ///< Bytes that shm and tcp send before their receive.
constexpr std::size_t kLengths[] = {1, 5, kSmall, 5000, kStored, 100'000, kAnnounced};
constexpr std::uint8_t kUntouched = 0xee;

RankOptions two_with_a_limit(const char* transport) {
  return {.transport = transport, .environment = {{"XYLEM_TIMEOUT", "60s"}}};
}

/// A message to the other rank, or to this rank itself. Both ranks send one.
struct OneMessage {
  std::size_t length = 0;
  bool is_late = false;  ///< The message is sent before its receive is posted.
  bool is_own = false;
};

std::vector<OneMessage> all_messages() {
  std::vector<OneMessage> all;
  for (const std::size_t length : kLengths) {
    for (const bool is_late : {false, true}) {
      for (const bool is_own : {false, true}) all.push_back({length, is_late, is_own});
    }
  }
  return all;
}

/// The send and the receive of one message. Some receives accept any source.
struct Passed {
  Work sent, received;
};
Passed pass(const Communicator& world,
            const OneMessage& message,
            const std::vector<std::uint8_t>& from,
            std::vector<std::uint8_t>& into,
            std::uint32_t tag) {
  const std::uint32_t partner = message.is_own ? world.rank() : 1 - world.rank();
  const auto source = tag % 3 == 0 ? std::nullopt : std::optional(partner);
  Passed passed;
  if (!message.is_late) passed.received = world.recv(std::span(into), source, tag);
  EXPECT_TRUE(world.barrier().wait());
  passed.sent = world.send(std::span<const std::uint8_t>(from), partner, tag);
  EXPECT_TRUE(world.barrier().wait());
  if (message.is_late) passed.received = world.recv(std::span(into), source, tag);
  (void)wait_all(passed.sent, passed.received);
  return passed;
}

TEST_P(MessagesOver, ShorterThanTheirReceivesLeaveTheRestAsItIs) {
  run_ranks(two_with_a_limit(GetParam()), [](const Communicator& world) {
    std::uint32_t tag = 0;
    for (const OneMessage& message : all_messages()) {
      const auto sent = pattern(tag, message.length);
      std::vector<std::uint8_t> got(2 * message.length + 1, kUntouched);
      const Passed passed = pass(world, message, sent, got, tag++);
      ASSERT_TRUE(passed.received.status()) << passed.received.status().to_string();
      ASSERT_TRUE(passed.sent.status()) << passed.sent.status().to_string();
      EXPECT_EQ(passed.received.count(), message.length);
      EXPECT_EQ(passed.received.source(), message.is_own ? world.rank() : 1 - world.rank());
      std::vector<std::uint8_t> expected = sent;
      expected.resize(got.size(), kUntouched);
      ASSERT_EQ(got, expected) << message.length << " bytes";
    }
    std::uint8_t untouched = kUntouched;
    const Work none = world.recv(Buffer(&untouched, 1, DataType::uint8), 1 - world.rank());
    ASSERT_TRUE(world.send(ConstBuffer(nullptr, 0, DataType::uint8), 1 - world.rank()).wait());
    ASSERT_TRUE(none.wait());
    EXPECT_EQ(none.count(), 0U);
    EXPECT_EQ(untouched, kUntouched);
  });
}

TEST_P(MessagesOver, LongerThanTheirReceivesFailAlone) {
  run_ranks(two_with_a_limit(GetParam()), [](const Communicator& world) {
    std::uint32_t tag = 0;
    for (const OneMessage& message : all_messages()) {
      const std::uint32_t partner = message.is_own ? world.rank() : 1 - world.rank();
      const auto sent = pattern(tag, message.length);
      std::vector<std::uint8_t> got(message.length - 1, kUntouched);
      const Passed passed = pass(world, message, sent, got, tag);
      const Status received = passed.received.status(), went = passed.sent.status();
      const std::string text = "rank " + std::to_string(partner) + " sends " +
                               std::to_string(message.length) + " uint8 to rank " +
                               std::to_string(world.rank()) + " with tag " + std::to_string(tag) +
                               ", which receives at most " + std::to_string(message.length - 1);
      ASSERT_EQ(received.code(), Code::mismatch) << received.to_string();
      EXPECT_THAT(received.message(), testing::StartsWith(text));
      EXPECT_EQ(received.peer(), partner);
      EXPECT_TRUE(passed.received.failed_alone());
      EXPECT_FALSE(received.holds_buffers() || went.holds_buffers());
      EXPECT_EQ(got, std::vector<std::uint8_t>(got.size(), kUntouched)) << "no byte is written";
      // If the send has not ended when the receive refuses the message, the send fails, too.
      const bool fails = message.is_own || message.length == kAnnounced;
      if (fails || !went) {
        ASSERT_EQ(went.code(), Code::mismatch) << message.length << " bytes: " << went.to_string();
        EXPECT_EQ(went.peer(), partner);
        EXPECT_TRUE(passed.sent.failed_alone());
      }
      // The next message with this tag is not affected.
      got.resize(message.length);
      const Passed next = pass(world, message, sent, got, tag++);
      ASSERT_TRUE(wait_all(next.sent, next.received));
      ASSERT_EQ(got, sent);
    }
  });
}

// Messages that are too long are stored at the receiver or in the transport, where there is room
// for 1 MiB. A refused message must release this room, though it may do so later than its receive
// fails. Only while there is room, a send ends before its receive begins.
TEST(Messages, ThatWereTooLongLeaveRoomForOthers) {
  constexpr std::size_t kStoredOnes = 100;
  for (const char* const transport : {"shm", "tcp"}) {
    run_ranks(two_with_a_limit(transport), [&](const Communicator& world) {
      std::vector<std::uint8_t> bytes(kStored);
      const std::span<const std::uint8_t> message(bytes);
      for (std::size_t i = 0; i < kStoredOnes; ++i) {
        const Work sent = world.rank() == 0 ? world.send(message, 1) : Work();
        ASSERT_TRUE(world.barrier().wait());
        if (world.rank() == 1) {
          const Work refused = world.recv(std::span(bytes).first(kStored - 1), 0);
          ASSERT_EQ(refused.wait().code(), Code::mismatch);
        } else {
          (void)sent.wait();  // It has ended, or is refused.
        }
      }
      const Deadline end = Deadline::after(seconds(20));
      for (std::vector<std::uint8_t> has_room{0}; has_room[0] == 0;) {
        ASSERT_FALSE(end.passed()) << transport;
        const Work sent = world.rank() == 0 ? world.send(message, 1) : Work();
        if (world.rank() == 0) has_room[0] = sent.wait_for(milliseconds(100)) ? 1 : 0;
        ASSERT_TRUE(world.broadcast(has_room, 0).wait());
        if (world.rank() == 1) {
          ASSERT_TRUE(world.recv(std::span(bytes), 0).wait());
        }
        ASSERT_TRUE(world.rank() == 1 || sent.wait());
      }
    });
  }
}

// The sender may have destroyed its communicator before the receiver refuses the message. The
// receiver may have destroyed its own before the sender answers.
TEST(Messages, ThatAreTooLongMayOutliveTheirCommunicator) {
  for (const char* const transport : {"shm", "tcp"}) {
    run_ranks(two_with_a_limit(transport), [&](const Communicator& world) {
      std::vector<std::uint8_t> bytes(kStored);
      for (int i = 0; i < 20; ++i) {
        auto copy = value_of(world.duplicate());
        if (world.rank() == 0) {
          ASSERT_TRUE(copy.send(std::span<const std::uint8_t>(bytes), 1).wait());
          ASSERT_TRUE(copy.destroy());
        }
        ASSERT_TRUE(world.barrier().wait());
        if (world.rank() == 0) continue;
        const Work receive = copy.recv(std::span(bytes).first(1), 0);
        ASSERT_EQ(receive.wait().code(), Code::mismatch);
        ASSERT_TRUE(receive.failed_alone());
        ASSERT_TRUE(copy.destroy());
      }
      ASSERT_TRUE(world.barrier().wait());
    });
  }
}

// shutdown() waits until the messages of the rank have arrived, even if the receiver is late.
TEST_P(MessagesOver, ArriveThoughTheirSenderLeaves) {
  std::promise<Status> left;
  auto has_left = left.get_future();
  std::latch is_sent(2);
  RankOptions options{.transport = GetParam(), .environment = {{"XYLEM_PROGRESS_THREAD", "off"}}};
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    if (world.rank() == 0) {
      send_many(world, 1);
      is_sent.arrive_and_wait();
      left.set_value(runtime.shutdown());
      return;
    }
    is_sent.arrive_and_wait();
    // A socket may buffer all of these messages. A queue in shared memory has too little room for
    // them.
    const bool was_early = has_left.wait_for(milliseconds(300)) == std::future_status::ready;
    EXPECT_FALSE(was_early && std::string_view(GetParam()) == "shm");
    receive_many(world);
    // The connection ends only if the receiver also makes progress.
    std::int64_t none = 0;
    const Work drives = world.recv(into(none), 0, 2);
    while (has_left.wait_for(milliseconds(1)) != std::future_status::ready) drives.test();
    EXPECT_TRUE(has_left.get());
    EXPECT_EQ(drives.wait().code(), Code::peer_lost);
  });
}

TEST_P(MessagesOver, ToARankThatHasLeftDelayNoGoodbye) {
  std::latch is_sent(2), has_left(2), is_over(2);
  run_ranks({.transport = GetParam()}, [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    const auto other = world.duplicate();
    EXPECT_TRUE(other.is_ok());
    if (world.rank() == 1) send_many(world, 0);
    is_sent.arrive_and_wait();
    if (world.rank() == 0) {
      EXPECT_TRUE(runtime.shutdown());
    }
    has_left.arrive_and_wait();
    if (world.rank() == 1) {
      std::int64_t none = 0;
      EXPECT_EQ(other->recv(into(none), 0, 2).wait().code(), Code::peer_lost)
          << "rank 0 has reported that it left";
      const Status late = world.send(one(none), 0).wait();
      EXPECT_THAT(late, testing::AllOf(fails_as(Code::peer_lost), blames(0U)));
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_TRUE(runtime.shutdown());
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
    }
    is_over.arrive_and_wait();
  });
}

// Loopback buffers no header here, so each header is under way until it is received.
class MessagesFarAhead : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, MessagesFarAhead, testing::Values("loopback", "shm"));

TEST_P(MessagesFarAhead, HoldUpTheirSender) {
  constexpr std::size_t kMessages = 1500;
  RankOptions options{.transport = GetParam()};
  options.eager_bytes = 0;
  // Without its progress thread, a rank that makes no calls removes nothing from the queue.
  options.environment["XYLEM_PROGRESS_THREAD"] = "off";
  std::latch is_sent(2);
  run_ranks(options, [&](const Communicator& world) {
    std::vector<std::int64_t> values(kMessages);
    std::iota(values.begin(), values.end(), 0);
    std::vector<Work> sends;
    if (world.rank() == 0) {
      for (const auto& value : values) sends.push_back(world.send(one(value), 1, 1));
      EXPECT_TRUE(sends.front().test()) << "a small send does not wait for its receive";
      EXPECT_FALSE(sends.back().test()) << "nor does memory grow without bound";
    }
    is_sent.arrive_and_wait();
    if (world.rank() == 1) {
      for (const auto& value : values) {
        std::int64_t got = -1;
        ASSERT_TRUE(world.recv(into(got), 0, 1).wait());
        ASSERT_EQ(got, value);
      }
    }
    for (const Work& send : sends) ASSERT_TRUE(send.wait());
  });
}

/// Checks the error of an operation that reaches its time limit of 300 ms.
void expect_at_limit(const Work& work, const std::string& what) {
  work.set_timeout(milliseconds(300));
  const Status outcome = work.wait();
  EXPECT_THAT(outcome,
              testing::AllOf(fails_as(Code::timed_out, what + " within 300 ms"), blames(1U)));
}

// Rank 1 is alive, but neither sends nor receives.
TEST(Messages, SayAtTheirLimitHowFarTheyHadCome) {
  std::latch is_over(2);
  run_ranks({.transport = "shm"}, [&](const Communicator& world) {
    const auto other = world.duplicate(), third = world.duplicate();
    ASSERT_TRUE(other && third);
    std::vector<std::uint8_t> bytes(kAnnounced);
    if (world.rank() == 0) {
      expect_at_limit(other->recv(std::span(bytes), 1, 7), "a receive with tag 7 met no partner");
      expect_at_limit(
          third->send(std::span<const std::uint8_t>(bytes), 1, 8),
          "a message of 3000000 uint8 to rank 1 with tag 8 was not received completely");
    }
    is_over.arrive_and_wait();
  });
}

// A callback that blocks holds the sender's token, so the rest of the message is not sent.
TEST(Messages, ThatArriveInPartSaySoAtTheirLimit) {
  std::latch is_held(1), is_over(1);
  run_ranks({.transport = "shm"}, [&](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    auto other = value_of(world.duplicate());
    std::vector<std::uint8_t> bytes(kAnnounced + 1);
    if (world.rank() == 0) {
      is_held.wait();
      expect_at_limit(
          world.recv(std::span(bytes), 1, 7),
          "a message of 3000000 uint8 from rank 1 with tag 7 did not arrive completely");
      // Rank 0 discards the rest of the message, so the send could succeed from here on.
      EXPECT_TRUE(hub.wait_until_served(1)) << "rank 1 learns of the failure before it continues";
      is_over.count_down();
      return;
    }
    const Work sent = world.send(std::span<const std::uint8_t>(bytes).first(kAnnounced), 0, 7);
    other.on_failure([&](const Status&) {
      is_held.count_down();
      is_over.wait();
    });
    EXPECT_TRUE(other.abort("calls the function above"));
    EXPECT_EQ(sent.wait().code(), Code::timed_out);
  });
}

TEST(Messages, ThatNeverGoEndTheirSendsWithTheCommunicator) {
  RankOptions options{.eager_bytes = 0};
  std::latch is_sent(2);
  run_ranks(options, [&](const Communicator& world) {
    auto other = world.duplicate();
    EXPECT_TRUE(other.is_ok());
    const std::int64_t value = 1;
    std::vector<Work> sends;
    for (int i = 0; i < 1500; ++i) sends.push_back(other->send(one(value), 1 - world.rank(), 1));
    EXPECT_FALSE(sends.back().test());
    is_sent.arrive_and_wait();
    EXPECT_TRUE(other->abort("nobody receives"));
    EXPECT_EQ(sends.back().wait().code(), Code::cancelled);
    EXPECT_TRUE(world.barrier().wait());
  });
}

// The notice that a rank has left is sent over the control plane. It may arrive before the rank's
// last message.
TEST(Messages, AreNotOvertakenByAGoodbye) {
  std::latch has_parted(2);
  run_ranks({}, [&](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    std::int64_t got = 0;
    const std::int64_t value = 7;
    if (world.rank() == 1) {
      const Work receive = world.recv(into(got), 0, 1);
      // Longer than the time for which a receive waits for messages of a rank that has left.
      EXPECT_EQ(receive.wait_for(milliseconds(1300)).code(), Code::timed_out);
      hub.part(0);
      EXPECT_EQ(receive.wait_for(milliseconds(100)).code(), Code::timed_out);
      has_parted.arrive_and_wait();
      EXPECT_TRUE(receive.wait());
      EXPECT_EQ(got, value);
    } else {
      has_parted.arrive_and_wait();
      EXPECT_TRUE(world.send(one(value), 1, 1).wait());
    }
  });
}

TEST(Messages, FromARankThatHasLeftAreNotWaitedFor) {
  run_ranks({}, [&](const Communicator& world) {
    if (world.rank() == 0) return;
    std::int64_t got = 0;
    const Status outcome = world.recv(into(got), 0, 1).wait_for(seconds(30));
    EXPECT_THAT(outcome, testing::AllOf(fails_as(Code::peer_lost), blames(0U)));
  });
}

/// Checks the error of a receive that reaches its time limit. Rank 1 is alive, but sends nothing.
void expect_blamed_at_limit(const Communicator& communicator) {
  std::int64_t got = 0;
  const auto begin = std::chrono::steady_clock::now();
  const Work never = communicator.recv(into(got), 1, 1);
  never.set_timeout(milliseconds(500));
  const Status outcome = never.wait();
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_THAT(outcome, testing::AllOf(fails_as(Code::timed_out), blames(1U)));
  EXPECT_EQ(outcome.message().find("gave no answer"), std::string::npos) << outcome.message();
  EXPECT_GE(took, milliseconds(500));
  // If a rank did not answer, the receive would end at 1.75 s.
  EXPECT_LT(took, milliseconds(1400)) << "all ranks answer, so there is no longer wait";
}

TEST(Messages, ThatMeetNoPartnerBlameTheRankThatTheyName) {
  std::latch is_over(3);
  run_ranks({.size = 3}, [&](const Communicator& world) {
    if (world.rank() == 0) expect_blamed_at_limit(world);
    is_over.arrive_and_wait();
  });
}

// A rank that has destroyed its handle of the communicator still answers the roll call.
TEST(Messages, BlameNobodyWhoHasDestroyedTheCommunicator) {
  std::latch is_destroyed(3), is_over(3);
  run_ranks({.size = 3}, [&](const Communicator& world) {
    auto copy = world.duplicate();
    EXPECT_TRUE(copy.is_ok());
    if (world.rank() == 2) {
      EXPECT_TRUE(copy->destroy());
    }
    is_destroyed.arrive_and_wait();
    if (world.rank() == 0) expect_blamed_at_limit(*copy);
    is_over.arrive_and_wait();
  });
}

// A receive from any source waits as long as one other rank is alive, since this rank may send.
TEST(Messages, FromAnySourceAreWaitedForWhileOneRankIsLeft) {
  std::latch has_met(2);
  run_ranks({.size = 3}, [&](const Communicator& world) {
    const std::int64_t value = 7;
    std::int64_t got = 0;
    if (world.rank() == 0) return;
    if (world.rank() == 1) {
      const Work receive = world.recv(into(got), std::nullopt, 1);
      // Longer than the time for which a receive waits for messages of a rank that has left.
      EXPECT_EQ(receive.wait_for(milliseconds(1300)).code(), Code::timed_out);
      has_met.arrive_and_wait();
      EXPECT_TRUE(receive.wait());
      EXPECT_EQ(receive.source(), 2U);
      const Work never = world.recv(into(got), std::nullopt, 2);
      never.set_timeout(milliseconds(100));
      const Status outcome = never.wait();
      EXPECT_THAT(outcome,
                  testing::AllOf(fails_as(Code::timed_out, "rank 0 left the job"), blames(0U)));
    } else {
      has_met.arrive_and_wait();
      EXPECT_TRUE(world.send(one(value), 1, 1).wait());
      EXPECT_EQ(world.recv(into(got), 1, 3).wait().code(), Code::timed_out);
    }
  });
}

}  // namespace
}  // namespace xylem::test
