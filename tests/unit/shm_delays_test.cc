// SPDX-License-Identifier: Apache-2.0
//
// Two ends of shared memory exchange messages of all kinds, in both directions at once. Each load
// and store that the other end can observe may be delayed by a time drawn from a seed. For this
// test, the sources of the transport are built with XYLEM_SHM_DELAYS.
//
// One run moves a million entries. A longer run: shm_delays_test --gtest_repeat=100
#include "shm/delays.h"
#include "xylem/base/clock.h"
#include "xylem/transport/shared_memory.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace xylem::transport::shm {
namespace {

/// xorshift64*, from Vigna, "An experimental exploration of Marsaglia's xorshift generators"
/// (2016).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U | 1U) {}
  std::uint64_t operator()() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DU;
  }

 private:
  std::uint64_t state_;
};

thread_local std::optional<Random> delays;

}  // namespace

void delay() noexcept {
  if (!delays) return;  // There are no delays while the two ends connect.
  const std::uint64_t chance = (*delays)() >> 32;
  if (chance % 8 != 0) return;
  if (chance % 8192 == 0) return std::this_thread::yield();
  for (volatile std::uint64_t turns = chance / 8 % 128; turns > 0;) turns = turns - 1;
}

namespace {

// The number of messages in each direction. Each message uses at least one entry.
constexpr std::uint64_t kMessages = 500'000;
constexpr std::uint64_t kMostBytes = 150'000;
constexpr std::uint64_t kPullFrom = 12'000;
constexpr auto kDeadline = std::chrono::seconds(20);

/// The contents of message `index` of one end.
struct Content {
  Content(std::uint64_t seed, std::uint64_t index) {
    Random random(seed << 32 ^ index);
    const std::uint64_t kind = random() >> 32;
    std::uint64_t most = 104;
    if (kind % 16 == 0) most = 5000;
    if (kind % 128 == 0) most = 20'000;
    if (kind % 4096 == 0) most = kMostBytes;
    bytes = (random() >> 16) % (most + 1);
    first = random();
  }
  void write(std::byte* data) const {
    for (std::uint64_t at = 0; at < bytes; at += 8) {
      const std::uint64_t word = first + at;
      std::memcpy(data + at, &word, std::min<std::uint64_t>(8, bytes - at));
    }
  }
  bool is(const std::byte* data) const {
    for (std::uint64_t at = 0; at < bytes; at += 8) {
      const std::uint64_t word = first + at;
      if (std::memcmp(data + at, &word, std::min<std::uint64_t>(8, bytes - at)) != 0) return false;
    }
    return true;
  }

  std::uint64_t bytes = 0;
  std::uint64_t first = 0;
};

/// One end. It sends messages 0, 1, 2, ..., and receives the messages of the other end. The tag of
/// a message is its number. The end uses all ways of sending and receiving in turn.
class End {
 public:
  End(Transport& transport, EndpointId peer, std::uint64_t seed, std::uint64_t peers_seed)
      : transport_(transport),
        peer_(peer),
        seed_(seed),
        peers_seed_(peers_seed),
        random_(seed),
        message_(kMostBytes) {
    for (Receiving& receiving : receivings_) receiving.data.resize(kMostBytes);
    // Large messages are read in place. Half of the buffers are in memory that the peer maps. The
    // other half is in the process's private memory, which the peer may be allowed to read.
    for (std::size_t i = 0; i < kWindow; ++i) {
      if (i % 2 == 0) {
        sendings_[i].heap.resize(kMostBytes);
        sendings_[i].data = sendings_[i].heap.data();
      } else {
        sendings_[i].data = static_cast<std::byte*>(*allocate_shared(kMostBytes));
      }
    }
    transport.views()->pull_from(kPullFrom);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    for (const Sending& sending : sendings_) {
      if (sending.heap.empty()) (void)free_shared(sending.data);
    }
  }

  /// Moves at least `messages` messages in each direction. Stops at the first wrong message.
  void exchange(std::uint64_t messages) {
    while (sent_ < messages || received_ < messages || under_way_ > 0) {
      bool moved = sent_ < messages && send();
      if (asked_ < messages) moved = ask(random_() >> 33) || moved;
      moved = transport_.progress() > 0 || moved;
      moved = check() || moved;
      if (testing::Test::HasFailure()) return;
      idle_ = moved ? 0 : idle_ + 1;
      if (idle_ <= 50 + (random_() >> 33) % 64) continue;
      // A message that arrives without a receive causes no wake-up.
      idle_ = 0;
      if (asked_ < messages && ask(kReceive)) continue;
      if (!sleep()) return;
    }
  }

 private:
  static constexpr std::size_t kWindow = 24;
  static constexpr std::uint64_t kReceive = 1;  ///< The `way` for ask() that posts a receive.
  enum class State : std::uint8_t { free, under_way, ended };
  struct Tracked : Operation {
    Tracked() { done = end; }
    static void end(Operation& self) noexcept { static_cast<Tracked&>(self).state = State::ended; }
    State state = State::free;
  };
  struct Sending : Tracked {
    std::byte* data = nullptr;
    std::vector<std::byte> heap;  ///< The data, if it is not in shared memory.
  };
  struct Receiving : Tracked {
    std::vector<std::byte> data;
    std::uint64_t index = 0;
  };

  bool send() {
    const Content content(seed_, sent_);
    const std::uint64_t way = random_() >> 33;
    const Tag tag = sent_;
    const std::uint64_t fits = transport_.views()->view_bytes();
    if (content.bytes <= transport_.capabilities().inline_bytes && way % 4 == 0) {
      content.write(message_.data());
      if (!transport_.send_inline(peer_, tag, message_.data(), content.bytes)) return false;
    } else if (content.bytes > 0 && content.bytes <= fits && way % 4 == 1) {
      Reservation slot;
      if (transport_.views()->reserve(std::span(&peer_, 1), content.bytes, slot) !=
          ReserveResult::reserved)
        return false;
      content.write(message_.data());
      transport_.views()->fill(message_.data(), {});
      transport_.views()->commit(peer_, tag);
    } else {
      Sending& sending = sendings_[sent_ % kWindow];
      if (sending.state == State::under_way) return false;
      content.write(sending.data);
      sending.state = State::under_way;
      ++under_way_;
      if (transport_.send(peer_, tag, {sending.data, content.bytes, {}, InPlace::anywhere},
                          sending) == Posted::done) {
        sending.state = State::ended;
      }
    }
    ++sent_;
    return true;
  }

  /// Tries to receive the next message in a given way.
  bool ask(std::uint64_t way) {
    const Content content(peers_seed_, asked_);
    View view;
    if (way % 2 == 0 && transport_.views()->take_view(peer_, asked_, content.bytes, view)) {
      delay();
      EXPECT_TRUE(content.is(view.data)) << "message " << asked_;
      transport_.views()->release(view);
      ++asked_;
      ++received_;
      return true;
    }
    // Does nothing, so that the message may arrive before its receive.
    if (way % 8 > 1) return false;
    Receiving& receiving = receivings_[asked_ % kWindow];
    if (receiving.state != State::free) return false;
    receiving.index = asked_;
    receiving.state = State::under_way;
    receiving.view = {};
    const bool looks = way % 8 == 0 && content.bytes > 0;
    const Region target{receiving.data.data(), receiving.data.size(), {}};
    const Posted posted = looks ? transport_.views()->recv_view(asked_, target, receiving)
                                : transport_.recv(asked_, kExactMatch, target, receiving);
    if (posted == Posted::done) receiving.state = State::ended;
    ++asked_;
    return true;
  }

  bool check() {
    bool found = false;
    for (Sending& sending : sendings_) {
      if (sending.state != State::ended) continue;
      EXPECT_EQ(sending.code, Code::ok);
      sending.state = State::free;
      --under_way_;
      found = true;
    }
    for (Receiving& receiving : receivings_) {
      if (receiving.state != State::ended) continue;
      const Content content(peers_seed_, receiving.index);
      EXPECT_EQ(receiving.code, Code::ok);
      EXPECT_EQ(receiving.bytes, content.bytes) << "message " << receiving.index;
      delay();
      const bool shows = receiving.view.data != nullptr;
      EXPECT_TRUE(content.is(shows ? receiving.view.data : receiving.data.data()))
          << "message " << receiving.index;
      if (shows) {
        EXPECT_TRUE(transport_.views()->release(receiving.view));
      }
      receiving.state = State::free;
      ++received_;
      found = true;
    }
    return found;
  }

  /// Sleeps until the other end wakes this one. Returns false after a time limit.
  bool sleep() {
    const auto armed = transport_.arm();
    EXPECT_TRUE(armed.is_ok());
    if (!armed.is_ok() || !*armed) return armed.is_ok();
    pollfd descriptor{transport_.wake_fd(), POLLIN, 0};
    const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline).count();
    const int woken = poll(&descriptor, 1, static_cast<int>(most));
    EXPECT_EQ(woken, 1) << "nobody woke an end that sent " << sent_ << ", asked for " << asked_
                        << " and received " << received_;
    return woken == 1;
  }

  Transport& transport_;
  EndpointId peer_;
  std::uint64_t seed_, peers_seed_;
  Random random_;
  std::vector<std::byte> message_;
  std::array<Sending, kWindow> sendings_;
  std::array<Receiving, kWindow> receivings_;
  std::uint64_t sent_ = 0, asked_ = 0, received_ = 0, under_way_ = 0;
  std::uint64_t idle_ = 0;
};

TEST(ShmDelays, LoseAndChangeNothing) {
  static std::uint64_t seed = 0;  // Each run of --gtest_repeat uses another seed.
  seed += 2;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  // With little memory, rings and slots are full most of the time.
  std::array<std::unique_ptr<Transport>, 2> transports;
  std::array<EndpointId, 2> peers{};
  for (auto& transport : transports) transport = *make_shm({.endpoints = 1, .bytes = 192 << 10});
  for (std::size_t i : {0U, 1U}) peers[i] = *transports[i]->connect(transports[1 - i]->address());
  const auto have_met = [&] {
    return transports[0]->connect_state(peers[0]) == ConnectState::complete &&
           transports[1]->connect_state(peers[1]) == ConnectState::complete;
  };
  for (const auto deadline = Deadline::after(kDeadline); !have_met();) {
    ASSERT_FALSE(deadline.passed());
    for (auto& transport : transports) transport->progress();
  }
  const auto run = [&](std::size_t i) {
    delays.emplace(seed + i);
    End end(*transports[i], peers[i], seed + i, seed + 1 - i);
    end.exchange(kMessages);
    delays.reset();
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

}  // namespace
}  // namespace xylem::transport::shm
