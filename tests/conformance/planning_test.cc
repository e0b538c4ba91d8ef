// SPDX-License-Identifier: Apache-2.0
//
// A thread that makes a call of a new shape plans the call without holding the progress token. So
// planning does not delay other communicators.
#include "runtime/src/progress/token_trace.h"
#include "support/ranks.h"
#include "xylem/base/clock.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <vector>

namespace xylem::runtime {
namespace {

using Nanoseconds = std::int64_t;

Nanoseconds thread_time() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * Nanoseconds{1'000'000'000} + now.tv_nsec;
}

/// The state of one thread.
struct Thread {
  bool is_measured = false;
  bool holds_token = false;
  Nanoseconds prepares_at = 0;
  /// CPU time that the thread needed to prepare its last call while it held the token.
  Nanoseconds prepared = 0;
};
thread_local Thread this_thread;

std::atomic<int> plans{0}, plans_with_token{0};

}  // namespace

void trace_token(TokenEvent event) noexcept {
  Thread& thread = this_thread;
  switch (event) {
    case TokenEvent::planned:
      ++plans;
      if (thread.holds_token) ++plans_with_token;
      break;
    case TokenEvent::taken: thread.holds_token = true; break;
    case TokenEvent::released: thread.holds_token = false; break;
    case TokenEvent::prepares:
      if (thread.is_measured) thread.prepares_at = thread_time();
      break;
    case TokenEvent::prepared:
      if (thread.is_measured) thread.prepared = thread_time() - thread.prepares_at;
      break;
  }
}

}  // namespace xylem::runtime

namespace xylem::test {
namespace {

/// Makes one collective call, which `which` selects. Does not wait for it.
Work call(const Communicator& world, unsigned which, std::span<float> in, std::span<float> out) {
  const std::size_t whole = in.size(), part = whole / world.size();
  switch (which % 4) {
    case 0: return world.all_reduce(std::span<const float>(in), out);
    case 1: return world.all_gather(std::span<const float>(in.first(part)), out);
    case 2: return world.reduce_scatter(std::span<const float>(in), out.first(part));
    default: return world.all_to_all(std::span<const float>(in), out);
  }
}

TEST(Planning, NeverHoldsTheToken) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
    runtime::plans = runtime::plans_with_token = 0;
    constexpr unsigned kShapes = 40;
    run_ranks({.size = ranks}, [&](const Communicator& world) {
      std::vector<Work> works;
      std::deque<std::vector<float>> buffers;
      for (unsigned shape = 0; shape < kShapes; ++shape) {
        const std::size_t count = std::size_t{world.size()} * (1 + 37 * shape);
        auto& in = buffers.emplace_back(count, 1.0F);
        auto& out = buffers.emplace_back(count);
        works.push_back(call(world, shape, in, out));
      }
      for (const Work& work : works) EXPECT_TRUE(work.wait());
      const std::vector<std::uint64_t> counts(world.size(), 3);
      std::vector<float> in(3), out(std::size_t{3} * world.size());
      EXPECT_TRUE(world.all_gather_v(std::span<const float>(in), std::span(out), counts).wait());
      auto part = world.split(static_cast<std::int32_t>(world.rank() % 2), 0);
      ASSERT_TRUE(part) << part.status().to_string();
    });
    EXPECT_GE(runtime::plans, static_cast<int>(ranks * kShapes));
    EXPECT_EQ(runtime::plans_with_token, 0);
  }
}

// Prints how long the first call of a new shape on 64 ranks is prepared while the token is held.
// The time is CPU time of the calling threads of two ranks, each bound to its own core. All ranks
// are threads of this process. The test does not check the times.
TEST(Planning, TimeWithTheTokenIsPrinted) {
  constexpr std::uint32_t kRanks = 64;
  const char* const wanted = std::getenv("XYLEM_PLANNING_SHAPES");
  const unsigned shapes =
      wanted == nullptr ? 20 : static_cast<unsigned>(std::strtoul(wanted, nullptr, 10));
  std::mutex mutex;
  std::vector<runtime::Nanoseconds> prepared, whole;
  run_ranks({.size = kRanks}, [&](const Communicator& world) {
    std::vector<float> in(std::size_t{kRanks} * 4096, 1.0F), out(in.size());
    // Ranks connect when they first exchange messages, so this happens before the measured calls.
    std::vector<Work> messages;
    std::vector<std::uint8_t> from(kRanks);
    const std::uint8_t mine = 1;
    for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
      messages.push_back(world.recv(Buffer(&from[peer], 1, DataType::uint8), peer, 0));
      messages.push_back(world.send(ConstBuffer(&mine, 1, DataType::uint8), peer, 0));
    }
    for (const Work& message : messages) EXPECT_TRUE(message.wait());
    const bool is_measured = world.rank() < 2;
    if (is_measured) {
      cpu_set_t core;
      CPU_ZERO(&core);
      CPU_SET(world.rank(), &core);
      pthread_setaffinity_np(pthread_self(), sizeof core, &core);
    }
    for (unsigned shape = 0; shape < shapes; ++shape) {
      const std::size_t count = std::size_t{kRanks} * (2 + shape * 4094 / shapes);
      auto& thread = runtime::this_thread;
      thread.is_measured = is_measured;
      thread.prepared = 0;
      const auto before = runtime::thread_time();
      const Work work = call(world, shape, std::span(in).first(count), std::span(out).first(count));
      const auto time = runtime::thread_time() - before;
      thread.is_measured = false;
      EXPECT_TRUE(work.wait());
      if (!is_measured) continue;
      const std::lock_guard lock(mutex);
      prepared.push_back(thread.prepared);
      whole.push_back(time);
    }
  });
  ASSERT_EQ(prepared.size(), 2 * shapes);
  const auto print = [](const char* what, std::vector<runtime::Nanoseconds>& times) {
    std::ranges::sort(times);
    const auto at = [&](double share) {
      return static_cast<double>(
                 times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))]) /
             1e3;
    };
    std::cout << what << ": median " << at(0.5) << " us, 99th percentile " << at(0.99)
              << " us, longest " << at(1) << " us\n";
  };
  print("prepared with the token", prepared);
  print("planned, prepared and started", whole);
}

}  // namespace
}  // namespace xylem::test
