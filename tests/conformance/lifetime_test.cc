// SPDX-License-Identifier: Apache-2.0
//
// The end of communicators: handles are dropped early, other threads abort, ranks leave, and later
// communicators reuse tag slots.
#include "support/outcome.h"
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <string>
#include <thread>

namespace xylem::test {
namespace {

using std::chrono::seconds;

constexpr std::uint32_t kRanks[] = {1, 2, 3, 5, 8};

class Lifetime : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks,
                         Lifetime,
                         testing::ValuesIn(kRanks),
                         testing::PrintToStringParamName());

RankOptions loopback(std::uint32_t ranks) { return {.size = ranks, .seed = 99 + ranks}; }

RankOptions two_over(const char* transport) { return {.transport = transport, .seed = 101}; }

TEST_P(Lifetime, LastHandleMayGoWhileTheCommunicatorWorks) {
  run_ranks(loopback(GetParam()), [](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    constexpr int kRounds = 50;
    std::vector<std::int64_t> in(kRounds, 1), out(kRounds, 0);
    for (int round = 0; round < kRounds; ++round) {
      auto brief = value_of(world.duplicate());
      const Work forgotten = brief.all_reduce(one(in[round]), into(out[round]));
      if (round % 2 == 0) {
        ASSERT_TRUE(forgotten.wait().is_ok());
      }
    }
    // Operations continue after their Work is dropped. shutdown() succeeds only after they have
    // ended.
    while (!runtime.shutdown().is_ok()) std::this_thread::yield();
    for (const std::int64_t sum : out) ASSERT_EQ(sum, world.size());
  });
}

TEST(LifetimeOfAnAbort, ComesFromAnotherThreadThanTheOneThatWaits) {
  for (const char* const transport : {"loopback", "shm"}) {
    run_ranks(two_over(transport), [](const Communicator& world) {
      auto other = value_of(world.duplicate());
      std::int64_t never = 0;
      const Work waits = other.recv(into(never), 1 - world.rank(), 7);
      std::latch is_waiting(1);
      std::thread waiter([&] {
        is_waiting.count_down();
        EXPECT_EQ(waits.wait_for(seconds(60)).code(), Code::cancelled);
      });
      is_waiting.wait();
      const auto begin = std::chrono::steady_clock::now();
      if (world.rank() == 0) {
        EXPECT_TRUE(other.abort("enough").is_ok());
      }
      waiter.join();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
      ASSERT_TRUE(world.barrier().wait().is_ok());
    });
  }
}

TEST_P(Lifetime, MessageThatNobodyReceivedReachesNoLaterCommunicator) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    const auto next = (world.rank() + 1) % world.size(),
               before = (world.rank() + world.size() - 1) % world.size();
    for (std::int64_t round = 0; round < 10; ++round) {
      auto first = value_of(world.duplicate());
      const std::int64_t stale = -round;
      const Work lost = first.send(one(stale), next, 3);
      if (world.size() > 1) {
        ASSERT_TRUE(lost.wait().is_ok());
        ASSERT_TRUE(first.destroy().is_ok());
      }
      auto second = value_of(world.duplicate());
      const std::int64_t fresh = 100 + round;
      std::int64_t got = 0;
      const Work receive = second.recv(into(got), before, 3);
      ASSERT_TRUE(wait_all(receive, second.send(one(fresh), next, 3)).is_ok());
      ASSERT_EQ(got, fresh);
      if (world.size() == 1) {
        ASSERT_TRUE(first.abort("a message to itself waits").is_ok());
      }
    }
  });
}

// After an abort, the sender's operation ends, and the sender may reuse its buffer, even if the
// receiver makes no call. The connection stays open, since other communicators use it.
TEST(LifetimeOfAnAbort, LeavesOtherCommunicatorsTheirConnections) {
  for (const char* const transport : {"loopback", "shm", "tcp", "ucx-tcp"}) {
    run_ranks(two_over(transport), [](const Communicator& world) {
      auto other = value_of(world.duplicate());
      const auto uneven = world.rank() == 0;
      std::vector<std::int64_t> large(1 << 17, 5);
      Work pending;
      if (uneven) pending = other.send(std::span<const std::int64_t>(large), 1, 1);
      ASSERT_TRUE(world.barrier().wait().is_ok());
      if (uneven) {
        // UCX may have sent the whole message before the abort.
        EXPECT_THAT(pending.wait().code(), testing::AnyOf(Code::cancelled, Code::ok));
      } else {
        ASSERT_TRUE(other.abort("changed its mind").is_ok());
        ASSERT_TRUE(other.destroy().is_ok());
      }
      for (int round = 0; round < 10; ++round) {
        std::int64_t in = 1, sum = 0;
        const auto status = world.all_reduce(one(in), into(sum)).wait();
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_EQ(sum, 2);
      }
    });
  }
}

// The tag slot of a poisoned communicator is released only after some time. A rank that needs a tag
// slot waits until one is free.
TEST(LifetimeOfAnAbort, ThousandLeaveRoomForAnother) {
  run_ranks({.size = 2}, [](const Communicator& world) {
    for (int i = 0; i < 1100; ++i) {
      auto copy = world.duplicate();
      ASSERT_TRUE(copy.is_ok()) << i << ": " << copy.status().to_string();
      if (world.rank() == 0) {
        ASSERT_TRUE(copy->abort("the test says so"));
      }
      std::byte nothing{};
      const Status ended =
          copy->recv(Buffer(&nothing, 1, DataType::uint8), 1 - world.rank()).wait();
      EXPECT_EQ(ended.code(), Code::cancelled);
      ASSERT_TRUE(copy->destroy());
    }
  });
}

TEST(LifetimeOfARuntime, MayBeEndedByTwoThreadsAtOnce) {
  run_ranks({.size = 2}, [](Runtime& runtime, MemoryHub&) {
    std::latch both(2);
    Status ended[2];
    const auto end = [&](int which) {
      both.arrive_and_wait();
      ended[which] = runtime.shutdown();
    };
    std::thread other(end, 1);
    end(0);
    other.join();
    EXPECT_TRUE(ended[0].is_ok() && ended[1].is_ok());
  });
}

TEST(LifetimeOfOperations, ManyOperationsThatEndAtOnceMayWaitBehindOneThatDoesNot) {
  std::atomic<bool> submitted{false};
  run_ranks(loopback(2), [&](const Communicator& world) {
    constexpr int kFirst = 64, kMore = 20000;
    std::vector<std::int64_t> in(kFirst, 1), out(kFirst, 0);
    while (world.rank() != 0 && !submitted) std::this_thread::yield();
    std::vector<Work> works;
    works.reserve(kFirst + kMore);
    for (int i = 0; i < kFirst; ++i) works.push_back(world.all_reduce(one(in[i]), into(out[i])));
    for (int i = 0; i < kMore; ++i) {
      works.push_back(world.all_reduce(ConstBuffer(nullptr, 0, DataType::int64),
                                       Buffer(nullptr, 0, DataType::int64)));
    }
    submitted = true;
    for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
    for (const std::int64_t sum : out) ASSERT_EQ(sum, 2);
  });
}

TEST(LifetimeOfARank, RankThatLeftIsNamedByThoseWhoWaitForItsMessages) {
  for (const bool any_source : {false, true}) {
    run_ranks(loopback(3), [any_source](Runtime& runtime, MemoryHub&) {
      const auto world = runtime.world();
      ASSERT_TRUE(world.barrier().wait().is_ok());
      if (world.rank() != 0) {
        ASSERT_TRUE(runtime.shutdown().is_ok());
        return;
      }
      std::int64_t never = 0;
      const auto from = any_source ? std::nullopt : std::optional<std::uint32_t>(2);
      const auto begin = std::chrono::steady_clock::now();
      const Status status = world.recv(into(never), from, 1).wait();
      EXPECT_THAT(status, testing::AllOf(fails_as(Code::peer_lost), blames(2U)));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
    });
  }
}

// This includes a communicator whose calls do not wait for the dead rank.
TEST(LifetimeOfARank, ThatDiesEndsAllItsCommunicatorsAndNoOther) {
  run_ranks(loopback(3), [](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    auto copy = world.duplicate();
    auto pair = world.split(world.rank() == 2 ? 1 : 0, 0);
    ASSERT_TRUE(copy.is_ok() && pair.is_ok());
    std::int64_t never = 0, sum = 0;
    const std::int64_t value = 1;
    const std::uint32_t living = 1 - std::min(world.rank(), 1U);
    const Work receive = copy->recv(into(never), living, 1);
    Status status = world.barrier().wait();  // When this barrier ends, all receives are posted.
    if (world.rank() == 2) return hub.kill(2);
    const auto begin = Clock::now();
    if (status) status = world.all_reduce(one(value), into(sum)).wait();
    for (const Status& ended : {status, receive.wait(), copy->barrier().wait()}) {
      EXPECT_THAT(ended, testing::AllOf(fails_as(Code::peer_lost), blames(2U)));
    }
    EXPECT_LT(Clock::now() - begin, seconds(2));
    EXPECT_TRUE(pair->all_reduce(one(value), into(sum)).wait());
    EXPECT_EQ(sum, 2);
  });
}

// Two calls of one communicator stall at once. The ranks compare them one after the other, and
// compare each call only once.
TEST_P(Lifetime, TwoCallsThatStallAtOnceEndWellWhenTheLateRankComes) {
  std::atomic<int> waited{0};
  const auto ranks = GetParam();
  run_ranks(loopback(ranks), [&](const Communicator& world) {
    const bool is_late = world.rank() + 1 == world.size();
    std::int64_t in = 1, a = 0, b = 0;
    while (is_late && waited < static_cast<int>(ranks) - 1) std::this_thread::yield();
    const Work first = world.all_reduce(one(in), into(a));
    const Work second = world.all_reduce(one(in), into(b));
    if (!is_late) {
      // A rank publishes a stalled call in less than 600 ms.
      EXPECT_EQ(second.wait_for(std::chrono::milliseconds(600)).code(), Code::timed_out);
      ++waited;
    }
    ASSERT_TRUE(wait_all(first, second).is_ok());
    ASSERT_EQ(a, world.size());
    ASSERT_EQ(b, world.size());
  });
}

// A destroyed communicator may have another handle. An abort through this handle must not affect
// the next communicator, which has the same tag slot.
TEST_P(Lifetime, AbortOfADestroyedCommunicatorHarmsNoLaterOne) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    for (int round = 0; round < 5; ++round) {
      auto first = value_of(world.duplicate());
      auto kept = first;
      const auto slot = kept.id();
      ASSERT_TRUE(first.destroy().is_ok());
      EXPECT_EQ(kept.abort("too late").code(), Code::invalid_argument);
      EXPECT_EQ(kept.barrier().wait().code(), Code::invalid_argument);
      ASSERT_TRUE(world.barrier().wait().is_ok()) << "all ranks have given the slot back";
      auto second = value_of(world.duplicate());
      EXPECT_EQ(second.id(), slot);
      for (std::int64_t i = 0; i < 20; ++i) {
        const std::int64_t value = 1;
        std::int64_t sum = 0;
        ASSERT_TRUE(second.all_reduce(one(value), into(sum)).wait_for(seconds(60)).is_ok());
        ASSERT_EQ(sum, world.size());
      }
      ASSERT_TRUE(second.destroy().is_ok());
      ASSERT_TRUE(world.barrier().wait().is_ok()) << "the next round begins with the same slots";
    }
  });
}

// A rank asks only about its oldest stalled call, and only if no other has asked; nobody answers.
TEST_P(Lifetime, ManyStalledCallsAreAskedAboutOnce) {
  std::latch is_asked(GetParam()), have_stalled(GetParam());
  run_ranks(loopback(GetParam()), [&](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    constexpr int kCalls = 40;
    std::vector<std::int64_t> in(kCalls, 1), out(kCalls, 0);
    std::vector<Work> calls;
    const auto call_all = [&] {
      for (int i = 0; i < kCalls; ++i) calls.push_back(world.all_reduce(one(in[i]), into(out[i])));
    };
    const bool asks = world.rank() == 1;
    const bool is_late = world.rank() == 0;
    if (asks) {
      call_all();
      EXPECT_TRUE(hub.wait_for_floods(1));
      for (std::uint32_t rank = 0; rank < world.size(); ++rank)
        EXPECT_TRUE(hub.wait_until_served(rank));
    }
    is_asked.arrive_and_wait();
    if (!asks && !is_late) {
      call_all();
      EXPECT_EQ(calls.back().wait_for(std::chrono::milliseconds(600)).code(), Code::timed_out);
      EXPECT_EQ(hub.floods(), 1U);
    }
    have_stalled.arrive_and_wait();
    if (is_late) call_all();
    for (const Work& call : calls) ASSERT_TRUE(call.wait().is_ok());
    for (const std::int64_t sum : out) ASSERT_EQ(sum, world.size());
  });
}

/// The file descriptors, mappings and heap memory of this process.
struct Holdings {
  std::ptrdiff_t descriptors = 0, mappings = 0;
  std::size_t heap_bytes = 0;

  static Holdings now() {
    Holdings now;
    now.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd") != std::string::npos) ++now.mappings;
    }
    now.heap_bytes = mallinfo2().uordblks;
    return now;
  }
};

TEST(LifetimeOverSharedMemory, CommunicatorsThatCameAndWentLeaveNothing) {
  // The number of measured calls, and the number of earlier calls, in which all pools reach their
  // final size.
  constexpr int kMany = 10'000, kWarm = 300;
  run_ranks(two_over("shm"), [](const Communicator& world) {
    // Rank 0 measures while rank 1 waits, since measuring opens files.
    const auto look = [&] {
      Holdings holdings;
      EXPECT_TRUE(world.barrier().wait());
      if (world.rank() == 0) holdings = Holdings::now();
      EXPECT_TRUE(world.barrier().wait());
      return holdings;
    };
    Holdings before;
    for (int round = 0; round < kMany; ++round) {
      if (round == kWarm) before = look();
      auto brief = value_of(world.duplicate());
      std::int64_t in = round, out = 0;
      ASSERT_TRUE(brief.all_reduce(one(in), into(out)).wait());
      ASSERT_EQ(out, 2 * round);
      const std::uint32_t peer = 1 - world.rank();
      const Work sent = brief.send(one(in), peer);
      ASSERT_TRUE(wait_all(sent, brief.recv(into(out), peer)));
      ASSERT_EQ(out, round);
      ASSERT_TRUE(brief.destroy());
    }
    const Holdings after = look();
    if (world.rank() != 0) return;
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_EQ(after.mappings, before.mappings);
    // Vectors of the two ranks may grow by this much.
    constexpr std::size_t kSlack = 256 << 10;
    EXPECT_LT(after.heap_bytes, before.heap_bytes + kSlack);
  });
}

// The connection between ranks 0 and 1 is cut, and both ranks are alive. Rank 1 waits only for rank
// 0. Rank 0 has sent its message, and makes other calls.
TEST(LifetimeOfAConnection, WhatIsCutEndsTheCommunicatorsOfItsEnds) {
  RankOptions options{.size = 3, .transport = "tcp", .environment = {{"XYLEM_TIMEOUT", "60s"}}};
  run_ranks(options, [](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    auto pair = value_of(world.split(world.rank() == 1 ? 1 : 0, 0));
    std::vector<float> a(1000, 1.0F), b(1000);
    // This call connects ranks 0 and 1.
    ASSERT_TRUE(world.all_reduce(std::span<const float>(a), std::span(b)).wait().is_ok());
    if (world.rank() == 0) {
      ASSERT_TRUE(world.send(std::span<const float>(a), 1).wait().is_ok());
    }
    if (world.rank() == 1) {
      ASSERT_TRUE(world.recv(std::span(b), 0).wait().is_ok());
      ASSERT_TRUE(hub.cut(0, 1));
      const auto begin = Clock::now();
      const Status lost = world.recv(std::span(b), 0).wait();
      EXPECT_THAT(lost.code(), testing::AnyOf(Code::peer_lost, Code::link_lost));
      EXPECT_THAT(lost.peer(), testing::AnyOf(0U, 1U)) << lost.to_string();
      EXPECT_LT(Clock::now() - begin, seconds(5));
      return;
    }
    // The communicator of ranks 0 and 2 does not use the cut connection, so it continues.
    EXPECT_TRUE(pair.all_reduce(std::span<const float>(a), std::span(b)).wait().is_ok());
    EXPECT_FALSE(world.barrier().wait().is_ok());
    EXPECT_TRUE(pair.barrier().wait().is_ok());
  });
}

/// Writes bytes that violate the protocol to a connection of this process.
bool write_garbage() {
  const std::string garbage(4096, 'G');
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const bool is_connected =
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.ss_family == AF_INET;
    if (is_connected) return ::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0;
  }
  return false;
}

TEST(LifetimeOfAConnection, BytesThatWereChangedEndItAndReachNobody) {
  RankOptions options{.transport = "tcp", .environment = {{"XYLEM_TIMEOUT", "60s"}}};
  run_ranks(options, [](const Communicator& world) {
    std::vector<float> a(1000, 1.0F), b(1000);
    ASSERT_TRUE(world.all_reduce(std::span<const float>(a), std::span(b)).wait().is_ok());
    std::fill(b.begin(), b.end(), -1.0F);
    const Work receive = world.recv(std::span(b), 1 - world.rank());
    ASSERT_TRUE(world.barrier().wait());
    if (world.rank() == 0) {
      ASSERT_TRUE(write_garbage());
    }
    const auto begin = Clock::now();
    const Status lost = receive.wait();
    EXPECT_THAT(lost.code(), testing::AnyOf(Code::peer_lost, Code::link_lost)) << lost.to_string();
    EXPECT_LT(Clock::now() - begin, seconds(3));
    EXPECT_THAT(b, testing::Each(-1.0F));
  });
}

// The network drops all packets between two ranks. The control plane still reaches both ranks.
TEST(LifetimeOfAConnection, SilenceEndsItThoughBothSend) {
  RankOptions options{.transport = "tcp", .environment = {{"XYLEM_TIMEOUT", "60s"}}};
  run_ranks(options, [](Runtime& runtime, MemoryHub& hub) {
    const auto world = runtime.world();
    std::vector<float> large(16 << 20, 1.0F), small(1000);
    ASSERT_TRUE(world.all_reduce(std::span<const float>(small), std::span(small)).wait().is_ok());
    ASSERT_TRUE(world.barrier().wait().is_ok());
    if (world.rank() == 0) {
      ASSERT_TRUE(hub.silence(0, 1));
    }
    const auto begin = Clock::now();
    // More bytes than the socket buffers hold, so each kernel has unacknowledged bytes.
    const Status lost = world.send(std::span<const float>(large), 1 - world.rank()).wait();
    // The rank that times out first reports link_lost and closes the connection. The other rank may
    // notice only the closed connection, and report peer_lost.
    EXPECT_THAT(lost.code(), testing::AnyOf(Code::link_lost, Code::peer_lost)) << lost.to_string();
    EXPECT_TRUE(lost.peer().has_value());
    EXPECT_GT(Clock::now() - begin, seconds(3));
    EXPECT_LT(Clock::now() - begin, seconds(9));
  });
}

}  // namespace
}  // namespace xylem::test
