// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport beyond the contract: bytes that are changed on the way, messages that are sent
// before they match a receive, and how endpoints get their connections.
#include "xylem/transport/tcp.h"

#include "support/outcome.h"
#include "unit/tcp_connections.h"
#include "unit/transport_fixture.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace xylem::transport::testing {
namespace {

/// Records the notifications of a transport.
struct Owner final : ConnectionOwner {
  void on_connection_needed(EndpointId endpoint) override { wanted.push_back(endpoint); }
  void on_lost(EndpointId endpoint, const Status& why) override {
    lost.emplace_back(endpoint, why.code());
  }

  std::vector<EndpointId> wanted;
  std::vector<std::pair<EndpointId, Code>> lost;
};

struct End {
  Owner owner;
  std::unique_ptr<Transport> transport;
  Connections* connections = nullptr;  ///< Belongs to `transport`.
  EndpointId peer = 0;

  explicit End(std::uint64_t ahead = 1 << 20) {
    transport = value_of(make_tcp({.ahead = ahead}));
    connections = transport->connections();
    connections->set_owner(&owner);
  }
  void meet(const End& other) { peer = value_of(transport->connect(other.transport->address())); }
};

struct Protected {
  Protection protection;
  Cipher cipher;
};
std::vector<Protected> protections() {
  std::vector<Protected> all{{Protection::auth, Cipher::chacha20_poly1305},
                             {Protection::encrypt, Cipher::chacha20_poly1305}};
  if (has_aes()) {
    all.push_back({Protection::auth, Cipher::aes256_gcm});
    all.push_back({Protection::encrypt, Cipher::aes256_gcm});
  }
  return all;
}

class Tcp : public ::testing::Test {
 protected:
  void SetUp() override {
    a.meet(b);
    b.meet(a);
  }
  void adopt(const Protected& how = {Protection::auth, Cipher::chacha20_poly1305}) {
    auto ends = connected_pair(how.protection, how.cipher);
    ASSERT_TRUE(a.connections->adopt(a.peer, std::move(ends.first)));
    ASSERT_TRUE(b.connections->adopt(b.peer, std::move(ends.second)));
  }
  template <typename Condition>
  bool both(Condition condition) {
    return drive({a.transport.get(), b.transport.get()}, condition);
  }

  End a, b;
};

/// Reads all available bytes of a socket.
std::vector<std::byte> drain(int fd) {
  std::vector<std::byte> all;
  std::array<std::byte, 65536> piece;
  for (ssize_t got = 0; (got = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT)) > 0;) {
    all.insert(all.end(), piece.begin(), piece.begin() + got);
  }
  return all;
}

void write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

/// A sender `a` and a receiver `b`. The test forwards the bytes between them.
struct Interception {
  End a, b;
  UniqueFd from_a, to_b;

  explicit Interception(const Protected& how) {
    a.meet(b);
    b.meet(a);
    auto first = connected_sockets(), second = connected_sockets();
    from_a = std::move(first.second);
    to_b = std::move(second.first);
    EXPECT_TRUE(a.connections->adopt(
        a.peer, {std::move(first.first), how.protection, how.cipher, test_key(1), test_key(2)}));
    EXPECT_TRUE(b.connections->adopt(
        b.peer, {std::move(second.second), how.protection, how.cipher, test_key(2), test_key(1)}));
  }
  /// Returns the bytes that `a` writes to its socket when it sends `source`.
  std::vector<std::byte> sent(const std::vector<std::byte>& source, Tag tag = 7) {
    Tracked operation;
    send(*a.transport, a.peer, tag, source.data(), source.size(), operation);
    std::vector<std::byte> wire;
    EXPECT_TRUE(drive({a.transport.get()}, [&] {
      const auto more = drain(from_a.get());
      wire.insert(wire.end(), more.begin(), more.end());
      return operation.ended() && a.transport->flush(a.peer);
    }));
    const auto rest = drain(from_a.get());
    wire.insert(wire.end(), rest.begin(), rest.end());
    return wire;
  }
  /// Expects that `b` loses the connection, and that no receive succeeds.
  void expect_refused(std::span<const std::byte> wire) {
    std::vector<std::byte> target(100'000, std::byte{0x5a});
    Tracked received;
    recv(*b.transport, 7, target.data(), target.size(), received);
    write_all(to_b.get(), wire);
    EXPECT_TRUE(drive({b.transport.get()}, [&] { return !b.owner.lost.empty(); }));
    ASSERT_EQ(b.owner.lost.size(), 1U);
    EXPECT_EQ(b.owner.lost[0].second, Code::link_lost);
    if (!received.ended()) b.transport->cancel(received);
    ASSERT_TRUE(drive({b.transport.get()}, [&] { return received.ended(); }));
    EXPECT_NE(received.code, Code::ok);
  }
};

/// Splits `source` into pieces of `run` bytes. Returns how many of these pieces occur in `wire`.
std::size_t runs_shown(std::span<const std::byte> wire,
                       std::span<const std::byte> source,
                       std::size_t run) {
  const auto text_of = [run](std::span<const std::byte> bytes, std::size_t at) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + at, run);
  };
  std::unordered_set<std::string_view> all;
  for (std::size_t at = 0; at + run <= wire.size(); ++at) all.insert(text_of(wire, at));
  std::size_t shown = 0;
  for (std::size_t at = 0; at + run <= source.size(); at += run) {
    shown += all.contains(text_of(source, at)) ? 1 : 0;
  }
  return shown;
}

TEST(TcpOnTheWay, ShowsTheBodyUnlessEncryptedAndTheHeadOnlyWithoutProtection) {
  // A frame's head contains the tag and the length of the message. These values occur nowhere else
  // in the bytes.
  constexpr Tag kTag = 0x5ec2e7a65ec2e7a6;
  constexpr std::size_t kRun = 16, kHead = 40;
  std::vector<Protected> all = protections();
  all.push_back({Protection::off, Cipher::chacha20_poly1305});
  // The small message is copied before it is sent. The large one is sent directly from its buffer,
  // in two frames.
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{36'864}}) {
    const auto source = pattern(bytes, 3);
    Interception open({Protection::off, Cipher::chacha20_poly1305});
    const auto clear = open.sent(source, kTag);
    std::vector<std::byte> told(2 * sizeof(std::uint64_t));
    const std::array<std::uint64_t, 2> words{static_cast<std::uint64_t>(kTag), bytes};
    std::memcpy(told.data(), words.data(), told.size());
    ASSERT_EQ(runs_shown(std::span(clear).first(kHead), told, told.size()), 1U);
    for (const Protected& how : all) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, protection " +
                   std::to_string(static_cast<int>(how.protection)));
      Interception middle(how);
      const auto wire = middle.sent(source, kTag);
      const std::size_t body = how.protection == Protection::encrypt ? 0 : bytes / kRun;
      EXPECT_EQ(runs_shown(wire, source, kRun), body);
      const bool has_head = how.protection == Protection::off;
      EXPECT_EQ(runs_shown(wire, told, sizeof(std::uint64_t)), has_head ? 2U : 0U);
    }
  }
}

TEST(TcpOnTheWay, EveryChangedByteEndsTheConnection) {
  // The message has two frames, so that the test also changes every part of the second frame.
  constexpr std::size_t kHead = 40 + 16, kBody = 32768, kRest = 4464;
  constexpr std::size_t frame = kHead + kBody + 16;
  const auto source = pattern(kBody + kRest, 3);
  for (const Protected& how : protections()) {
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{9}, std::size_t{39}, std::size_t{40}, kHead - 1, kHead,
          std::size_t{5000}, frame - 17, frame - 16, frame - 1, frame, frame + 40, frame + 100,
          frame + kHead + kRest}) {
      SCOPED_TRACE(at);
      Interception middle(how);
      auto wire = middle.sent(source);
      ASSERT_EQ(wire.size(), frame + kHead + kRest + 16);
      wire[at] ^= std::byte{0x10};
      middle.expect_refused(wire);
    }
  }
}

TEST(TcpOnTheWay, WhatIsRepeatedOrLeftOutEndsTheConnection) {
  const auto source = pattern(1000, 3);
  for (const Protected& how : protections()) {
    {
      Interception middle(how);
      const auto once = middle.sent(source);
      std::vector<std::byte> target(source.size());
      Tracked first;
      recv(*middle.b.transport, 7, target.data(), target.size(), first);
      write_all(middle.to_b.get(), once);
      ASSERT_TRUE(drive({middle.b.transport.get()}, [&] { return first.ended(); }));
      EXPECT_EQ(target, source);
      middle.expect_refused(once);
    }
    Interception middle(how);
    (void)middle.sent(source);
    middle.expect_refused(middle.sent(source));
  }
}

TEST(TcpOnTheWay, AnotherConnectionsFramesAreRefused) {
  const auto source = pattern(1000, 3);
  for (const Protected& how : protections()) {
    Interception middle(how);
    const auto wire = middle.sent(source);
    // The frame is returned to its sender. The sender must refuse it, since the two directions have
    // different keys.
    write_all(middle.from_a.get(), wire);
    EXPECT_TRUE(drive({middle.a.transport.get()}, [&] { return !middle.a.owner.lost.empty(); }));
  }
}

TEST(TcpOnTheWay, ACutConnectionEndsNothingWell) {
  const auto source = pattern(37'000, 3);
  for (const std::size_t cut : {10, 56, 100, 32839, 32840, 37'000}) {
    Interception middle({Protection::auth, Cipher::chacha20_poly1305});
    const auto wire = middle.sent(source);
    std::vector<std::byte> target(source.size());
    Tracked received;
    recv(*middle.b.transport, 7, target.data(), target.size(), received);
    write_all(middle.to_b.get(), std::span(wire).first(cut));
    middle.to_b.reset();
    EXPECT_TRUE(drive({middle.b.transport.get()}, [&] { return !middle.b.owner.lost.empty(); }));
    EXPECT_EQ(middle.b.owner.lost[0].second, Code::peer_lost);
    if (!received.ended()) middle.b.transport->cancel(received);
    ASSERT_TRUE(drive({middle.b.transport.get()}, [&] { return received.ended(); }));
    EXPECT_NE(received.code, Code::ok);
  }
}

TEST(TcpOnTheWay, GarbageWithoutProtectionIsNoCrash) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    Interception middle({Protection::off, Cipher::chacha20_poly1305});
    std::vector<std::byte> target(4096);
    Tracked received;
    recv(*middle.b.transport, 7, target.data(), target.size(), received, 0);
    std::vector<std::byte> garbage(40 * (1 + random() % 8));
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    // Makes the kinds and the body lengths valid.
    for (std::size_t at = 0; at < garbage.size(); at += 40) {
      garbage[at] = static_cast<std::byte>(random() % 9);
      garbage[at + 6] = garbage[at + 7] = {};
      if (random() % 2 == 0) garbage[at + 4] = garbage[at + 5] = {};
    }
    write_all(middle.to_b.get(), garbage);
    middle.to_b.reset();
    EXPECT_TRUE(drive({middle.b.transport.get()}, [&] { return !middle.b.owner.lost.empty(); }));
    if (!received.ended()) middle.b.transport->cancel(received);
    ASSERT_TRUE(drive({middle.b.transport.get()}, [&] { return received.ended(); }));
  }
}

TEST_F(Tcp, AConnectionIsAskedForOnceAndWhatWaitsForItGoes) {
  const auto source = pattern(100'000, 1);
  std::vector<std::byte> target(source.size());
  std::deque<Tracked> sent(3);
  for (Tracked& one : sent) send(*a.transport, a.peer, 1, source.data(), source.size(), one);
  EXPECT_EQ(a.owner.wanted, std::vector<EndpointId>{a.peer});
  settle({a.transport.get()});
  EXPECT_FALSE(sent[0].ended());
  EXPECT_FALSE(a.transport->flush(a.peer));
  adopt();
  for (int i = 0; i < 3; ++i) {
    Tracked received;
    recv(*b.transport, 1, target.data(), target.size(), received);
    ASSERT_TRUE(both([&] { return received.ended(); }));
    EXPECT_EQ(target, source);
  }
  ASSERT_TRUE(both([&] { return sent[2].ended(); }));
  EXPECT_TRUE(b.owner.wanted.empty());
}

TEST_F(Tcp, WhatWaitsForAConnectionCanBeCancelledAndClosed) {
  const std::uint64_t value = 1;
  Tracked cancelled, closed;
  send(*a.transport, a.peer, 1, &value, 8, cancelled);
  send(*a.transport, a.peer, 1, &value, 8, closed);
  a.transport->cancel(cancelled);
  ASSERT_TRUE(drive({a.transport.get()}, [&] { return cancelled.ended(); }));
  EXPECT_EQ(cancelled.code, Code::cancelled);
  a.transport->close(a.peer);
  ASSERT_TRUE(drive({a.transport.get()}, [&] { return closed.ended(); }));
  EXPECT_EQ(closed.code, Code::peer_lost);
  // A connection that is adopted after close() is closed.
  adopt();
  ASSERT_TRUE(both([&] { return !b.owner.lost.empty(); }));
  EXPECT_EQ(b.owner.lost[0], std::pair(b.peer, Code::peer_lost));
}

TEST_F(Tcp, ASecondConnectionOfAnEndpointEnds) {
  adopt();
  auto sockets = connected_sockets();
  ASSERT_TRUE(a.connections->adopt(a.peer, {std::move(sockets.first)}));
  std::byte nothing{};
  EXPECT_EQ(::recv(sockets.second.get(), &nothing, 1, 0), 0);
  std::uint64_t value = 5, got = 0;
  Tracked sent, received;
  send(*a.transport, a.peer, 1, &value, 8, sent);
  recv(*b.transport, 1, &got, 8, received);
  ASSERT_TRUE(both([&] { return received.ended(); }));
  EXPECT_EQ(got, 5U);
}

TEST_F(Tcp, WhatIsSentAheadIsBoundedAndHoldsNobodyBack) {
  adopt();
  constexpr std::size_t kMessages = 200;
  const auto source = pattern(64 * 1024, 1);
  std::deque<Tracked> sent(kMessages);
  for (Tracked& one : sent) send(*a.transport, a.peer, 1, source.data(), source.size(), one);
  settle({a.transport.get(), b.transport.get()});
  const auto ended = [](const Tracked& one) { return one.ended(); };
  EXPECT_LE(std::ranges::count_if(sent, ended), 16);
  // Other messages, small and large ones, still arrive.
  const auto large = pattern(1 << 20, 2);
  std::vector<std::byte> target(large.size());
  for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{1 << 20}}) {
    Tracked other, received;
    send(*a.transport, a.peer, 2, large.data(), bytes, other);
    recv(*b.transport, 2, target.data(), bytes, received);
    ASSERT_TRUE(both([&] { return other.ended() && received.ended(); }));
    EXPECT_EQ(received.code, Code::ok);
  }
  EXPECT_EQ(target, large);
  for (std::size_t i = 0; i < kMessages; ++i) {
    Tracked received;
    recv(*b.transport, 1, target.data(), target.size(), received);
    ASSERT_TRUE(both([&] { return received.ended(); }));
    ASSERT_EQ(received.bytes, source.size());
  }
  ASSERT_TRUE(both([&] { return std::ranges::all_of(sent, ended); }));
}

// Whoever passes messages on begins when the first has arrived, and not when all of them have.
TEST_F(Tcp, EqualMessagesArriveOneAfterTheOther) {
  adopt();
  constexpr std::size_t kMessages = 4, kBytes = 8 << 20;
  const auto source = pattern(kBytes, 1);
  std::vector<std::vector<std::byte>> targets(kMessages, std::vector<std::byte>(kBytes));
  std::deque<Tracked> sent(kMessages), received(kMessages);
  for (std::size_t i = 0; i < kMessages; ++i)
    recv(*b.transport, i, targets[i].data(), kBytes, received[i]);
  for (std::size_t i = 0; i < kMessages; ++i)
    send(*a.transport, a.peer, i, source.data(), kBytes, sent[i]);
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(both([&] { return received[i].ended(); }));
    for (std::size_t later = i + 1; later < kMessages; ++later) {
      ASSERT_FALSE(received[later].ended()) << later << " before " << i;
      EXPECT_EQ(targets[later].back(), std::byte{0}) << later << " beside " << i;
    }
  }
  ASSERT_TRUE(both([&] { return std::ranges::all_of(sent, &Tracked::ended); }));
}

// Slices of a pipeline: if one that is announced were overtaken by later ones, whoever passes them
// on in order would wait.
TEST_F(Tcp, AnAnnouncedMessageIsNotOvertaken) {
  adopt();
  constexpr std::size_t kMessages = 64, kUnderWay = 8, kBytes = 256 << 10;
  const auto source = pattern(kBytes, 1);
  std::vector<std::byte> target(kBytes);
  std::deque<Tracked> sent(kMessages), received(kMessages);
  for (std::size_t i = 0; i < kMessages; ++i)
    recv(*b.transport, i, target.data(), kBytes, received[i]);
  std::size_t begun = 0;
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (; begun < std::min(i + kUnderWay, kMessages); ++begun)
      send(*a.transport, a.peer, begun, source.data(), kBytes, sent[begun]);
    ASSERT_TRUE(both([&] { return received[i].ended(); }));
    for (std::size_t later = i + 2; later < begun; ++later)
      ASSERT_FALSE(received[later].ended()) << later << " before " << i;
  }
  ASSERT_TRUE(both([&] { return std::ranges::all_of(sent, &Tracked::ended); }));
}

TEST_F(Tcp, ShortMessagesNeitherWaitForALongOneNorStopIt) {
  adopt();
  constexpr std::size_t kLong = 64 << 20, kShort = 1 << 20, kShortOnes = 200;
  const auto source = pattern(kLong, 1);
  std::vector<std::byte> target(kLong), other(kShort);
  std::deque<Tracked> sent(1 + kShortOnes), received(1 + kShortOnes);
  for (std::size_t i = 0; i <= kShortOnes; ++i) {
    recv(*b.transport, i, i == 0 ? target.data() : other.data(), i == 0 ? kLong : kShort,
         received[i]);
    send(*a.transport, a.peer, i, source.data(), i == 0 ? kLong : kShort, sent[i]);
  }
  ASSERT_TRUE(both([&] { return received[0].ended(); }));
  EXPECT_EQ(target, source);
  // Both kinds have half of the frames.
  const auto passed = std::ranges::count_if(received, &Tracked::ended) - 1;
  EXPECT_GT(passed, kLong / kShort / 2);
  EXPECT_LT(passed, kLong / kShort * 2);
  ASSERT_TRUE(both([&] { return std::ranges::all_of(received, &Tracked::ended); }));
  ASSERT_TRUE(both([&] { return std::ranges::all_of(sent, &Tracked::ended); }));
}

TEST_F(Tcp, CreditComesBackHoweverMessagesEnd) {
  adopt();
  const auto source = pattern(100 * 1024, 1);
  std::vector<std::byte> target(source.size());
  std::mt19937_64 random(7);
  for (int round = 0; round < 400; ++round) {
    Tracked sent, received;
    const bool is_ahead = random() % 2 == 0, is_short = random() % 4 == 0;
    const std::uint64_t room = is_short ? source.size() / 2 : source.size();
    if (!is_ahead) recv(*b.transport, 1, target.data(), room, received);
    send(*a.transport, a.peer, 1, source.data(), source.size(), sent);
    if (random() % 3 == 0) settle({a.transport.get()});
    if (random() % 3 == 0) b.transport->progress();
    switch (random() % 4) {
      case 0:
        if (!sent.ended()) a.transport->cancel(sent);
        break;
      case 1:
        if (!is_ahead && !received.ended()) b.transport->cancel(received);
        break;
      default: break;
    }
    ASSERT_TRUE(both([&] {
      b.transport->discard(1, kExactMatch);
      return sent.ended();
    }));
    settle({a.transport.get(), b.transport.get()});
    b.transport->discard(1, kExactMatch);
    if (!is_ahead && !received.ended()) b.transport->cancel(received);
    ASSERT_TRUE(both([&] { return is_ahead || received.ended(); }));
  }
  settle({a.transport.get(), b.transport.get()});
  // All messages are sent before they match. Otherwise these sends would not end before they are
  // received.
  std::deque<Tracked> sent(7);
  for (Tracked& one : sent) send(*a.transport, a.peer, 1, source.data(), source.size(), one);
  ASSERT_TRUE(both(
      [&] { return std::ranges::all_of(sent, [](const Tracked& one) { return one.ended(); }); }));
}

TEST(TcpAddress, AnotherBoundIsAMismatch) {
  const End a(1 << 20), b(1 << 16);
  EXPECT_EQ(a.transport->connect(b.transport->address()).code(), Code::mismatch);
}

}  // namespace
}  // namespace xylem::transport::testing
