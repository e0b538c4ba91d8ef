// SPDX-License-Identifier: Apache-2.0
//
// Tests on every transport how transports sleep and wake each other.
#include "unit/transport_subject.h"
#include "xylem/transport/host_peers.h"

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace xylem::transport::testing {
namespace {

using TransportSleep = TransportPair;

TEST_P(TransportSleep, ArmedDescriptorBecomesReadableForAMessage) {
  ASSERT_GE(b->wake_fd(), 0);
  for (int round = 0; round < 20; ++round) {
    std::uint64_t got = 0;
    const std::uint64_t value = 5;
    Tracked sent, received;
    recv(*b, 1, &got, 8, received);
    ASSERT_TRUE(drive({a.get(), b.get()}, [&] {
      auto armed = b->arm();
      EXPECT_TRUE(armed.is_ok()) << armed.status().to_string();
      return armed.is_ok() && *armed;
    }));
    send(*a, to_b, 1, &value, 8, sent);
    ASSERT_TRUE(drive({a.get()}, [&] {
      // In the first round, the event may be the connection for which the message waits.
      pollfd waiting{b->wake_fd(), POLLIN, 0};
      return ::poll(&waiting, 1, 0) == 1;
    }));
    ASSERT_TRUE(both_end(sent, received));
    EXPECT_EQ(got, 5U);
  }
}

TEST_P(TransportSleep, TwoThreadsThatSleepLoseNoWakeUp) {
  constexpr std::uint64_t kRounds = 2000;
  std::atomic<bool> failed{false};
  const auto serve = [&](Transport& self, EndpointId peer, bool starts) {
    const auto deadline = Deadline::after(kPatience);
    std::uint64_t in = 0, out = 0;
    const auto wait_for = [&](Tracked& operation) {
      while (!operation.ended()) {
        if (failed || deadline.passed()) return false;
        if (self.progress() > 0) continue;
        const auto armed = self.arm();
        if (!armed) return false;
        if (!*armed) continue;
        // The time limit is so long that it cannot hide a lost wake-up.
        pollfd waiting{self.wake_fd(), POLLIN, 0};
        if (::poll(&waiting, 1, deadline.left_ms()) != 1) return false;
      }
      return operation.code == Code::ok;
    };
    for (std::uint64_t round = 0; round < kRounds && !failed; ++round) {
      Tracked sent, received;
      out = round;
      recv(self, round, &in, 8, received);
      if (starts) send(self, peer, round, &out, 8, sent);
      if (!wait_for(received) || in != round) failed = true;
      if (!starts) send(self, peer, round, &out, 8, sent);
      if (!failed && !wait_for(sent)) failed = true;
    }
  };
  std::thread other([&] { serve(*b, to_a, false); });
  serve(*a, to_b, true);
  other.join();
  EXPECT_FALSE(failed);
}

TEST_P(TransportSleep, OnlySharedMemoryKnowsItsPeersAsProcesses) {
  EXPECT_EQ(a->host_peers() != nullptr, GetParam().kind == Subject::Kind::shm);
}

INSTANTIATE_TEST_SUITE_P(On, TransportSleep, ::testing::ValuesIn(all_subjects()), label_of);

/// Two transports that each share a segment, and are connected.
class SharedHost : public TransportPair {
 protected:
  void SetUp() override {
    TransportPair::SetUp();
    ASSERT_TRUE(both_drive([&] {
      return a->connect_state(to_b) == ConnectState::complete &&
             b->connect_state(to_a) == ConnectState::complete;
    }));
  }
};

TEST_P(SharedHost, HeldWakesFollowAtTheEndOfTheHold) {
  for (int round = 0; round < 20; ++round) {
    const std::array<std::uint64_t, 4> values{1, 2, 3, 4};
    std::array<std::uint64_t, 4> got{};
    std::array<Tracked, 4> sent, received;
    for (std::size_t i = 0; i < got.size(); ++i) recv(*b, i, &got[i], 8, received[i]);
    ASSERT_TRUE(drive({a.get(), b.get()}, [&] {
      const auto armed = b->arm();
      return armed.is_ok() && *armed;
    }));
    pollfd waiting{b->wake_fd(), POLLIN, 0};
    a->host_peers()->hold_wakes(true);
    for (std::size_t i = 0; i < got.size(); ++i) send(*a, to_b, i, &values[i], 8, sent[i]);
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    a->host_peers()->hold_wakes(false);
    EXPECT_EQ(::poll(&waiting, 1, 0), 1);
    ASSERT_TRUE(both_drive([&] { return std::ranges::all_of(received, &Tracked::ended); }));
    EXPECT_EQ(got, values);
  }
}

TEST_P(SharedHost, PeersSeeWhetherAProcessComputes) {
  EXPECT_FALSE(b->host_peers()->do_peers_compute());
  a->host_peers()->show_computing(true);
  EXPECT_TRUE(b->host_peers()->do_peers_compute());
  EXPECT_FALSE(a->host_peers()->do_peers_compute());
  a->host_peers()->show_computing(false);
  EXPECT_FALSE(b->host_peers()->do_peers_compute());
}

TEST_P(SharedHost, APeerWhoseEndpointIsClosedDoesNotCompute) {
  a->host_peers()->show_computing(true);
  EXPECT_TRUE(b->host_peers()->do_peers_compute());
  b->close(to_a);
  EXPECT_FALSE(b->host_peers()->do_peers_compute());
}

INSTANTIATE_TEST_SUITE_P(On,
                         SharedHost,
                         ::testing::Values(Subject{Subject::Kind::shm}),
                         [](const auto& row) { return row.param.label(); });

}  // namespace
}  // namespace xylem::transport::testing
