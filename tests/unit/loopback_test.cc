// SPDX-License-Identifier: Apache-2.0
//
// Promises of loopback that other transports do not make: a message order that depends on a seed,
// small messages that are buffered and large messages that wait, many threads, and no allocation in
// steady traffic.
#include "xylem/transport/loopback.h"

#include "support/sanitizer.h"
#include "unit/transport_fixture.h"

#include <gtest/gtest.h>

#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace {
thread_local std::uint64_t allocations = 0;
}  // namespace

// The thread sanitizer defines these operators itself, so allocations are not counted under it.
#ifndef XYLEM_THREAD_SANITIZER
// Not inlined: otherwise GCC would see that memory of malloc() is passed to delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace xylem::transport::testing {
namespace {

/// Larger than the default of eager_bytes. So a message of this size is offered: the receiver
/// copies it directly from the sender's memory, and the send ends only after this copy.
constexpr std::uint64_t kOffered = 100000;

EndpointId join(Transport& from, const Transport& to) {
  auto endpoint = from.connect(to.address());
  EXPECT_TRUE(endpoint.is_ok()) << endpoint.status().to_string();
  return *endpoint;
}

// Returns the order in which 50 receives with different tags end.
std::vector<int> order_of_completion(std::uint64_t seed) {
  static constexpr int kCount = 50;
  struct Numbered : Operation {
    int number = 0;
    std::vector<int>* order = nullptr;
  };
  LoopbackFabric fabric({.seed = seed});
  const auto a = fabric.attach();
  const auto b = fabric.attach();
  const EndpointId to_b = join(*a, *b);
  std::vector<int> order;
  std::deque<Numbered> received(kCount);
  std::deque<Tracked> sent(kCount);
  std::vector<std::uint64_t> values(kCount);
  for (int i = 0; i < kCount; ++i) {
    auto& operation = received[static_cast<std::size_t>(i)];
    operation.number = i;
    operation.order = &order;
    operation.done = [](Operation& self) noexcept {
      auto& numbered = static_cast<Numbered&>(self);
      numbered.order->push_back(numbered.number);
    };
    auto& value = values[static_cast<std::size_t>(i)];
    EXPECT_EQ(b->recv(static_cast<Tag>(i), kExactMatch, {&value, 8, {}}, operation),
              Posted::pending);
    send(*a, to_b, static_cast<Tag>(i), &value, 8, sent[static_cast<std::size_t>(i)]);
  }
  EXPECT_TRUE(drive({a.get(), b.get()}, [&] { return order.size() == kCount && ended(sent); }));
  return order;
}

TEST(Loopback, SeedZeroKeepsTheOrder) {
  std::vector<int> sorted(50);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_EQ(order_of_completion(0), sorted);
}

TEST(Loopback, EachSeedHasItsOwnOrderAndRepeatsIt) {
  std::set<std::vector<int>> orders = {order_of_completion(0)};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto order = order_of_completion(seed);
    EXPECT_EQ(order, order_of_completion(seed)) << "seed " << seed;
    EXPECT_TRUE(orders.insert(order).second) << "seed " << seed;
  }
}

TEST(Loopback, SmallMessagesAreCopiedAtOnceAndLargeOnesWait) {
  LoopbackFabric fabric({.eager_bytes = 16});
  const auto a = fabric.attach();
  const auto b = fabric.attach();
  const EndpointId to_b = join(*a, *b);
  EXPECT_EQ(a->capabilities().inline_bytes, 16U);

  auto source = pattern(17, 1);
  Operation copied;
  EXPECT_EQ(a->send(to_b, 1, {source.data(), 16, {}}, copied), Posted::done);
  const auto first = source[0];
  source[0] = std::byte{0};  // Has no effect on the message, since it was copied.

  Tracked offered;
  send(*a, to_b, 2, source.data(), 17, offered);
  settle({a.get(), b.get()});
  EXPECT_FALSE(offered.ended());
  source[1] = std::byte{99};  // Changes the message, since it was not copied.

  std::vector<std::byte> target(17);
  Tracked received[2];
  recv(*b, 1, target.data(), 16, received[0]);
  ASSERT_TRUE(drive({a.get(), b.get()}, [&] { return received[0].ended(); }));
  EXPECT_EQ(target[0], first);
  recv(*b, 2, target.data(), 17, received[1]);
  ASSERT_TRUE(drive({a.get(), b.get()}, [&] { return received[1].ended() && offered.ended(); }));
  EXPECT_EQ(target[1], std::byte{99});
}

TEST(Loopback, RefusesAnAddressOfAnotherFabric) {
  LoopbackFabric one;
  LoopbackFabric other;
  const auto a = one.attach();
  const auto b = other.attach();
  EXPECT_EQ(a->connect(b->address()).code(), Code::invalid_argument);
}

TEST(Loopback, TransportsOutliveTheirFabric) {
  auto fabric = std::make_unique<LoopbackFabric>();
  const auto a = fabric->attach();
  const auto b = fabric->attach();
  fabric.reset();
  const EndpointId to_b = join(*a, *b);
  std::uint64_t value = 5;
  std::uint64_t got = 0;
  Tracked sent;
  Tracked received;
  send(*a, to_b, 1, &value, 8, sent);
  recv(*b, 1, &got, 8, received);
  ASSERT_TRUE(drive({a.get(), b.get()}, [&] { return sent.ended() && received.ended(); }));
  EXPECT_EQ(got, 5U);
}

TEST(Loopback, ConnectingToOneThatEndedSendsToNobody) {
  LoopbackFabric fabric;
  const auto a = fabric.attach();
  auto b = fabric.attach();
  const std::vector<std::byte> address(b->address().begin(), b->address().end());
  b.reset();
  const auto gone = a->connect(address);
  ASSERT_TRUE(gone.is_ok()) << gone.status().to_string();
  for (const std::uint64_t bytes : {std::uint64_t{8}, kOffered}) {
    const auto source = pattern(bytes, 1);
    Tracked sent;
    send(*a, *gone, 1, source.data(), bytes, sent);
    ASSERT_TRUE(drive({a.get()}, [&] { return sent.ended(); }));
    EXPECT_EQ(sent.code, Code::peer_lost);
  }
}

TEST(Loopback, SteadyTrafficAllocatesNothing) {
  LoopbackFabric fabric;
  const auto a = fabric.attach();
  const auto b = fabric.attach();
  const EndpointId to_b = join(*a, *b);
  const auto source = pattern(kOffered, 1);
  std::vector<std::byte> target(kOffered);
  const auto exchange = [&](std::uint64_t bytes, bool ahead) {
    Tracked sent;
    Tracked received;
    if (ahead) recv(*b, 1, target.data(), bytes, received);
    send(*a, to_b, 1, source.data(), bytes, sent);
    b->progress();
    if (!ahead) recv(*b, 1, target.data(), bytes, received);
    while (!sent.ended() || !received.ended()) {
      a->progress();
      b->progress();
    }
  };
  std::uint64_t after_warm_up = 0;
  for (int round = 0; round < 100; ++round) {
    if (round == 10) after_warm_up = allocations;
    for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{8000}, kOffered}) {
      exchange(bytes, true);
      exchange(bytes, false);
    }
  }
  EXPECT_EQ(allocations, after_warm_up);
}

class LoopbackThreads : public ::testing::TestWithParam<std::uint64_t> {};

// Each of eight ranks has its own thread, exchanges eager messages, and messages that it offers
// before it sends them, with all others, and sleeps when it has nothing to do.
TEST_P(LoopbackThreads, AllToAllWithSleepLosesNothing) {
  constexpr std::size_t kRanks = 8;
  constexpr std::uint64_t kRounds = 40;
  LoopbackFabric fabric({.seed = GetParam(), .eager_bytes = 64});
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < kRanks; ++rank) transports.push_back(fabric.attach());
  std::atomic<bool> failed{false};

  const auto serve = [&](std::size_t rank) {
    Transport& self = *transports[rank];
    std::vector<EndpointId> peers;
    for (const auto& peer : transports) peers.push_back(join(self, *peer));
    const auto deadline = Deadline::after(kPatience);
    for (std::uint64_t round = 0; round < kRounds && !failed; ++round) {
      const std::uint64_t bytes = round % 2 == 0 ? 64 : 4096;
      std::deque<Tracked> operations;
      std::vector<std::vector<std::byte>> targets(kRanks, std::vector<std::byte>(bytes));
      std::vector<std::vector<std::byte>> sources;
      for (std::size_t peer = 0; peer < kRanks; ++peer) {
        sources.push_back(pattern(bytes, rank * kRanks + peer + round));
        recv(self, round * kRanks + peer, targets[peer].data(), bytes, operations.emplace_back());
        send(self, peers[peer], round * kRanks + rank, sources.back().data(), bytes,
             operations.emplace_back());
      }
      while (!ended(operations) && !failed) {
        if (self.progress() > 0) continue;
        const auto armed = self.arm();
        if (!armed || deadline.passed()) failed = true;
        if (failed || !*armed) continue;
        pollfd waiting{self.wake_fd(), POLLIN, 0};
        if (::poll(&waiting, 1, deadline.left_ms()) != 1) failed = true;
      }
      for (std::size_t peer = 0; peer < kRanks && !failed; ++peer) {
        failed = failed || targets[peer] != pattern(bytes, peer * kRanks + rank + round);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(serve, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(failed);
}

// The sender closes its endpoint while the receiver may be copying from the sender's memory. Then
// the sender frees this memory.
TEST_P(LoopbackThreads, ClosingWhileTheReceiverCopiesIsSafe) {
  LoopbackFabric fabric({.seed = GetParam()});
  std::atomic<bool> stop{false};
  const auto receiver = fabric.attach();
  std::thread thread([&] {
    std::vector<std::byte> target(kOffered);
    while (!stop) {
      Tracked received;
      recv(*receiver, 1, target.data(), kOffered, received);
      while (!received.ended() && !stop) receiver->progress();
      if (!received.ended()) receiver->cancel(received);
      while (!received.ended()) receiver->progress();
    }
  });
  std::uint64_t lost = 0;
  for (int round = 0; round < 300; ++round) {
    const auto sender = fabric.attach();
    const EndpointId endpoint = join(*sender, *receiver);
    std::deque<Tracked> sent(4);
    {
      const auto source = pattern(kOffered, 1);
      for (Tracked& operation : sent) {
        send(*sender, endpoint, 1, source.data(), kOffered, operation);
      }
      for (int i = 0; i < round % 20; ++i) sender->progress();
      sender->close(endpoint);
      EXPECT_TRUE(drive({sender.get()}, [&] { return ended(sent); }));
    }
    for (const Tracked& operation : sent) {
      EXPECT_EQ(operation.ends, 1);
      EXPECT_TRUE(operation.code == Code::ok || operation.code == Code::peer_lost);
      lost += operation.code == Code::peer_lost;
    }
  }
  stop = true;
  thread.join();
  EXPECT_GT(lost, 0U);
}

// When a transport is destroyed while others send to it, all these sends end.
TEST_P(LoopbackThreads, EndingWhileOthersSendEndsTheirSends) {
  for (int round = 0; round < 10; ++round) {
    LoopbackFabric fabric({.seed = GetParam()});
    auto target = fabric.attach();
    const std::vector<std::byte> address(target->address().begin(), target->address().end());
    std::atomic<int> running{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        const auto self = fabric.attach();
        const auto endpoint = self->connect(address);
        const auto source = pattern(kOffered, 1);
        Code last = Code::ok;
        ++running;
        while (last == Code::ok) {
          Tracked small;
          Tracked large;
          send(*self, *endpoint, 1, source.data(), 8, small);
          send(*self, *endpoint, 2, source.data(), kOffered, large);
          ASSERT_TRUE(drive({self.get()}, [&] { return small.ended() && large.ended(); }));
          last = large.code;
        }
        EXPECT_EQ(last, Code::peer_lost);
      });
    }
    ASSERT_TRUE(drive({target.get()}, [&] { return running == 3; }));
    for (int i = 0; i < 5 * round; ++i) {
      target->progress();
      target->discard(2, kExactMatch);
    }
    target.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds,
                         LoopbackThreads,
                         ::testing::Values(0, 1, 2, 3),
                         [](const auto& row) { return "seed" + std::to_string(row.param); });

}  // namespace
}  // namespace xylem::transport::testing
