// SPDX-License-Identifier: Apache-2.0
//
// Tests each promise of the transport contract on every transport. One thread drives both
// transports of a test, or each has its own thread.
#include "support/sanitizer.h"
#include "unit/transport_subject.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <thread>

namespace xylem::transport::testing {
namespace {

class TransportContract : public TransportPair {
 protected:
  /// Sends `source`, and receives up to `bytes` of it. If `ahead` is true, the receive is posted
  /// before the send; otherwise, after the message has arrived.
  bool transfer(bool ahead,
                const std::vector<std::byte>& source,
                std::byte* target,
                std::uint64_t bytes,
                Tracked& sent,
                Tracked& received) {
    if (ahead) recv(*b, 1, target, bytes, received);
    send(*a, to_b, 1, source.data(), source.size(), sent);
    if (!ahead) {
      settle({a.get(), b.get()});
      recv(*b, 1, target, bytes, received);
    }
    return both_end(sent, received);
  }
};
/// Transports whose cancel() ends every operation at once.
class WithdrawingTransport : public TransportPair {};

constexpr std::uint64_t kSizes[] = {0, 1, 8, 4096, 65536, 1 << 20, 8 << 20};
constexpr std::uint64_t kLarge = 1 << 20;  ///< Too large to be buffered at the sender.

TEST_P(TransportContract, DeliversEverySizePostedAheadAndUnexpected) {
  for (const std::uint64_t bytes : kSizes) {
    for (const bool ahead : {true, false}) {
      SCOPED_TRACE(bytes);
      const auto source = pattern(bytes, bytes);
      std::vector<std::byte> target(bytes + 1, std::byte{0x5a});
      Tracked sent, received;
      ASSERT_TRUE(transfer(ahead, source, target.data(), bytes, sent, received));
      EXPECT_EQ(sent.code, Code::ok);
      EXPECT_EQ(received.code, Code::ok);
      EXPECT_EQ(received.bytes, bytes);
      EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
      EXPECT_EQ(target.back(), std::byte{0x5a});
    }
  }
}

TEST_P(TransportContract, MatchesOnlyTheExactTag) {
  std::uint64_t values[2] = {11, 22}, got[2] = {};
  Tracked sent[2], received[2];
  recv(*b, 0x8000000000000001, &got[0], 8, received[0]);
  recv(*b, 0x0000000000000001, &got[1], 8, received[1]);
  send(*a, to_b, 0x0000000000000001, &values[1], 8, sent[1]);
  ASSERT_TRUE(both_end(received[1]));
  EXPECT_FALSE(received[0].ended());
  send(*a, to_b, 0x8000000000000001, &values[0], 8, sent[0]);
  ASSERT_TRUE(both_end(received[0], sent));
  EXPECT_EQ(got[0], 11U);
  EXPECT_EQ(got[1], 22U);
}

TEST_P(TransportContract, ChecksAllBitsOfATagWhereItSaysSo) {
  if (!a->capabilities().checks_tags) return;  // Such a transport compares only the lower bits.
  constexpr Tag kName = 0x8000000000000001;
  for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{65536}, kLarge}) {
    for (unsigned bit = kNameBits; bit < kNameBits + kCheckBits; bit += 23) {
      const Tag tags[2] = {kName, kName | (Tag{1} << bit)};
      const auto first = pattern(bytes, 1), second = pattern(bytes, 2);
      std::vector<std::byte> got(bytes), other(bytes);
      Tracked sent[2], received[2];
      recv(*b, tags[1], got.data(), bytes, received[1]);
      send(*a, to_b, tags[0], first.data(), bytes, sent[0]);
      settle({a.get(), b.get()});
      EXPECT_FALSE(received[1].ended());
      send(*a, to_b, tags[1], second.data(), bytes, sent[1]);
      ASSERT_TRUE(both_end(received[1]));
      EXPECT_EQ(got, second);
      recv(*b, tags[0], other.data(), bytes, received[0]);
      ASSERT_TRUE(both_end(received[0], sent));
      EXPECT_EQ(other, first);
    }
  }
}

TEST_P(TransportContract, MaskMatchesAndTellsTheSendersTag) {
  const std::uint64_t values[2] = {1, 2};
  std::uint64_t got = 0;
  Tag tag = 0;
  Tracked sent[2];
  Tracked received;
  recv(*b, 0xab00, &got, 8, received, 0xff00, &tag);
  send(*a, to_b, 0xac07, &values[0], 8, sent[0]);
  send(*a, to_b, 0xab07, &values[1], 8, sent[1]);
  ASSERT_TRUE(both_end(received));
  EXPECT_EQ(got, 2U);
  EXPECT_TRUE(tag == 0xab07U);

  // The same for a message that arrives before its receive.
  Tracked late;
  recv(*b, 0, &got, 8, late, 0, &tag);
  ASSERT_TRUE(both_end(late, sent));
  EXPECT_EQ(got, 1U);
  EXPECT_TRUE(tag == 0xac07U);
}

// All messages except one are shorter than the regions into which they are received.
TEST_P(TransportContract, EqualTagsOfOneSenderMatchInTheOrderSent) {
  constexpr std::size_t kCount = 64;
  // Small messages, which are copied, alternate with large messages, which wait for their receive.
  const auto bytes_of = [](std::size_t i) { return i % 3 == 0 ? 200000 + i : 8 + i; };
  std::vector<std::vector<std::byte>> sources(kCount);
  std::vector<std::vector<std::byte>> targets(kCount, std::vector<std::byte>(200000 + kCount));
  std::deque<Tracked> sent(kCount);
  std::deque<Tracked> received(kCount);
  for (std::size_t i = 0; i < kCount / 2; ++i) {
    recv(*b, 7, targets[i].data(), targets[i].size(), received[i]);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    sources[i] = pattern(bytes_of(i), i);
    send(*a, to_b, 7, sources[i].data(), sources[i].size(), sent[i]);
    if (i % 5 == 0) b->progress();
  }
  settle({a.get(), b.get()});
  for (std::size_t i = kCount / 2; i < kCount; ++i) {
    recv(*b, 7, targets[i].data(), targets[i].size(), received[i]);
  }
  ASSERT_TRUE(both_end(sent, received));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(received[i].code, Code::ok) << i;
    ASSERT_EQ(received[i].bytes, sources[i].size()) << i;
    ASSERT_TRUE(std::equal(sources[i].begin(), sources[i].end(), targets[i].begin())) << i;
  }
}

TEST_P(TransportContract, ManyInFlightBothWaysEachEndOnce) {
  constexpr std::size_t kCount = 400;
  struct Side {
    std::vector<std::uint64_t> sources = std::vector<std::uint64_t>(kCount);
    std::vector<std::uint64_t> targets = std::vector<std::uint64_t>(kCount);
    std::deque<Tracked> operations;
  };
  Side sides[2];
  Transport* transports[2] = {a.get(), b.get()};
  const EndpointId peers[2] = {to_b, to_a};
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t s = 0; s < 2; ++s) {
      Side& side = sides[s];
      side.sources[i] = i * 2 + s;
      send(*transports[s], peers[s], i, &side.sources[i], 8, side.operations.emplace_back());
      const std::size_t j = (i * 37) % kCount;  // A permutation: 37 and 400 share no factor.
      recv(*transports[s], j, &side.targets[j], 8, side.operations.emplace_back());
    }
  }
  ASSERT_TRUE(both_end(sides[0].operations, sides[1].operations));
  settle({a.get(), b.get()});
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(sides[s].targets[i], i * 2 + (1 - s));
    for (const Tracked& operation : sides[s].operations) {
      EXPECT_EQ(operation.ends, 1);
      EXPECT_EQ(operation.code, Code::ok);
      EXPECT_FALSE(operation.ended_in_post);
    }
  }
}

TEST_P(TransportContract, SendsUpToInlineBytesEndAtOnce) {
  const auto source = pattern(a->capabilities().inline_bytes, 3);
  if (source.empty()) return;  // The transport makes this promise for no size.
  Operation operation;         // This operation has no `done`, so a call of it would crash.
  ASSERT_EQ(a->send(to_b, 1, {source.data(), source.size(), {}}, operation), Posted::done);
  EXPECT_EQ(operation.code, Code::ok);
}

TEST_P(TransportContract, SendsToItself) {
  const EndpointId self = join(*a, *a);
  for (const std::uint64_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    const auto source = pattern(bytes, 5);
    std::vector<std::byte> target(bytes);
    Tracked sent, received;
    send(*a, self, 9, source.data(), bytes, sent);
    recv(*a, 9, target.data(), bytes, received);
    ASSERT_TRUE(drive({a.get()}, [&] { return sent.ended() && received.ended(); }));
    EXPECT_EQ(source, target);
  }
  a->close(self);
}

TEST_P(TransportContract, CompletionsMayPost) {
  // A chain: within progress(), each end posts its next receive and sends an answer.
  struct Chain : Tracked {
    Transport* at = nullptr;
    EndpointId peer = 0;
    std::uint64_t value = 0;
    int left = 0;
    std::deque<Tracked> answers;
    std::deque<std::uint64_t> payloads;

    void post() { ends += at->recv(1, kExactMatch, {&value, 8, {}}, *this) == Posted::done; }
    static void next(Operation& self) noexcept {
      auto& chain = static_cast<Chain&>(self);
      do {
        chain.payloads.push_back(chain.value + 1);
        send(*chain.at, chain.peer, 1, &chain.payloads.back(), 8, chain.answers.emplace_back());
        if (--chain.left == 0) return;
      } while (chain.at->recv(1, kExactMatch, {&chain.value, 8, {}}, chain) == Posted::done);
    }
  };
  Chain chains[2];
  chains[0].at = a.get();
  chains[0].peer = to_b;
  chains[1].at = b.get();
  chains[1].peer = to_a;
  for (Chain& chain : chains) {
    chain.done = Chain::next;
    chain.left = 50;
    chain.post();
  }
  const std::uint64_t first = 0;
  Tracked sent;
  send(*a, to_b, 1, &first, 8, sent);
  ASSERT_TRUE(both_drive([&] {
    return chains[0].left == 0 && chains[1].left == 0 && sent.ended() &&
           chains[0].answers.back().ended() && chains[1].answers.back().ended();
  }));
  EXPECT_EQ(chains[0].payloads.back(), 100U);
  std::uint64_t last = 0;
  Tracked drained;
  recv(*b, 1, &last, 8, drained);
  ASSERT_TRUE(both_end(drained));
  EXPECT_EQ(last, 100U);
}

TEST_P(TransportContract, CompletionsMayCancelAndClose) {
  struct Ender : Tracked {
    Transport* at = nullptr;
    Operation* other = nullptr;
    const EndpointId* peer = nullptr;
    static void end(Operation& self) noexcept {
      auto& ender = static_cast<Ender&>(self);
      ++ender.ends;
      if (ender.other != nullptr) ender.at->cancel(*ender.other);
      if (ender.peer != nullptr) ender.at->close(*ender.peer);
    }
  };
  // The end of a receive cancels another receive, whose end cancels a third one and closes an
  // endpoint.
  const auto source = pattern(kLarge, 1);
  std::array<std::uint64_t, 3> got{};
  std::array<Ender, 3> received;
  Tracked sent, waiting;
  for (std::size_t i = 0; i < 3; ++i) {
    received[i].done = Ender::end;
    received[i].at = b.get();
    if (i < 2) received[i].other = &received[i + 1];
    recv(*b, i, &got[i], 8, received[i]);
  }
  received[0].peer = &to_a;
  send(*b, to_a, 3, source.data(), source.size(), waiting);
  settle({a.get(), b.get()});
  const std::uint64_t value = 5;
  send(*a, to_b, 0, &value, 8, sent);
  ASSERT_TRUE(both_end(sent, waiting, received));
  EXPECT_EQ(got, (std::array<std::uint64_t, 3>{value, 0, 0}));
  EXPECT_EQ(received[0].code, Code::ok);
  EXPECT_EQ(received[1].code, Code::cancelled);
  EXPECT_EQ(received[2].code, Code::cancelled);
  EXPECT_EQ(waiting.code, Code::peer_lost);
  settle({a.get(), b.get()});
  EXPECT_EQ(received[0].ends + received[1].ends + received[2].ends + waiting.ends, 4);
}

TEST_P(TransportContract, CancelledReceiveEndsOnceAndLeavesItsBufferAlone) {
  std::uint64_t got = 42;
  Tracked cancelled;
  recv(*b, 1, &got, 8, cancelled);
  settle({a.get(), b.get()});
  b->cancel(cancelled);
  ASSERT_TRUE(both_end(cancelled));
  EXPECT_EQ(cancelled.code, Code::cancelled);

  const std::uint64_t value = 7;
  std::uint64_t second = 0;
  Tracked sent, received;
  send(*a, to_b, 1, &value, 8, sent);
  settle({a.get(), b.get()});
  recv(*b, 1, &second, 8, received);
  ASSERT_TRUE(both_end(sent, received));
  EXPECT_EQ(got, 42U);
  EXPECT_EQ(second, 7U);
  EXPECT_EQ(cancelled.ends, 1);
}

TEST_P(TransportContract, CancelRacingWithAMessageEndsOnce) {
  std::uint64_t ok = 0, lost = 0;
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t value = 7;
    std::uint64_t got = 0;
    Tracked sent, received;
    recv(*b, 1, &got, 8, received);
    send(*a, to_b, 1, &value, 8, sent);
    for (int i = 0; i < round % 4; ++i) a->progress();
    for (int i = 0; i < round / 4 % 4; ++i) b->progress();
    if (!received.ended()) b->cancel(received);
    ASSERT_TRUE(both_end(sent, received));
    ASSERT_EQ(received.ends, 1);
    if (received.code == Code::ok) {
      ASSERT_EQ(got, 7U);
      ++ok;
      continue;
    }
    ASSERT_EQ(received.code, Code::cancelled);
    ++lost;
    std::uint64_t dropped = 0;
    ASSERT_TRUE(both_drive([&] { return (dropped += b->discard(1, kExactMatch)) == 1; }));
  }
  EXPECT_EQ(ok + lost, 100U);
}

TEST_P(TransportContract, CancelOfAReceiveThatIsArrivingEndsOnce) {
  const auto source = pattern(4 * kLarge, 1);
  std::vector<std::byte> target(source.size());
  for (int patience = 0; patience < 60; patience += 5) {
    Tracked sent, received;
    recv(*b, 1, target.data(), target.size(), received);
    send(*a, to_b, 1, source.data(), source.size(), sent);
    both_progress(patience);
    b->cancel(received);
    b->cancel(received);
    ASSERT_TRUE(both_end(received));
    EXPECT_EQ(received.ends, 1);
    if (received.code == Code::ok) {
      EXPECT_TRUE(same(target, source));
    } else {
      EXPECT_EQ(received.code, Code::cancelled);
    }
    // The message has matched the cancelled receive, or is still available for another receive. In
    // the second case, it is discarded.
    ASSERT_TRUE(both_drive([&] {
      b->discard(1, kExactMatch);
      return sent.ended();
    }));
    EXPECT_EQ(sent.code, Code::ok);
  }
}

TEST_P(WithdrawingTransport, CancelEndsAReceiveThoughItsSenderStandsStill) {
  const auto source = pattern(4 * kLarge, 1);
  const auto untouched = pattern(source.size(), 2);
  for (int patience = 0; patience < 60; patience += 5) {
    std::vector<std::byte> target(source.size());
    Tracked sent, received;
    recv(*b, 1, target.data(), target.size(), received);
    send(*a, to_b, 1, source.data(), source.size(), sent);
    both_progress(patience);
    if (!received.ended()) b->cancel(received);
    ASSERT_TRUE(drive({b.get()}, [&] { return received.ended(); }));
    // The buffer belongs to the user again. The sender continues, but its data must not be written
    // to this buffer.
    target = untouched;
    ASSERT_TRUE(both_drive([&] {
      b->discard(1, kExactMatch);
      return sent.ended();
    }));
    EXPECT_EQ(sent.code, Code::ok);
    EXPECT_TRUE(same(target, untouched));
    EXPECT_EQ(received.ends, 1);
  }
  std::uint64_t value = 7, got = 0;
  Tracked sent, received;
  send(*a, to_b, 2, &value, 8, sent);
  recv(*b, 2, &got, 8, received);
  ASSERT_TRUE(both_end(sent, received));
  EXPECT_EQ(got, 7U);
}

TEST_P(WithdrawingTransport, CancelEndsASendThoughItsReceiverStandsStill) {
  const auto whole = pattern(4 * kLarge, 1);
  for (int round = 0; round < 100; round += test::kHasThreadSanitizer ? 7 : 1) {
    const bool is_posted = round % 2 == 0;
    const auto tag = static_cast<Tag>(round);
    auto source = std::make_unique<std::vector<std::byte>>(whole);
    std::vector<std::byte> target(whole.size());
    Tracked sent, received;
    if (is_posted) recv(*b, tag, target.data(), target.size(), received);
    send(*a, to_b, tag, source->data(), source->size(), sent);
    both_progress(round / 2);
    if (!sent.ended()) a->cancel(sent);
    ASSERT_TRUE(drive({a.get()}, [&] { return sent.ended(); }));
    EXPECT_EQ(sent.ends, 1);
    // A sanitizer reports any later read of the source.
    source.reset();
    settle({a.get(), b.get()});
    if (is_posted && !received.ended()) b->cancel(received);
    ASSERT_TRUE(both_drive([&] { return !is_posted || received.ended(); }));
    if (is_posted && received.code == Code::ok) {
      EXPECT_TRUE(same(target, whole));
    }
    b->discard(tag, kExactMatch);
  }
  // The room of withdrawn messages is free again, so 100 further messages arrive.
  std::vector<Tracked> sent(100), received(100);
  std::vector<std::vector<std::byte>> targets(100, std::vector<std::byte>(whole.size()));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    send(*a, to_b, 1000 + i, whole.data(), whole.size(), sent[i]);
    recv(*b, 1000 + i, targets[i].data(), whole.size(), received[i]);
  }
  ASSERT_TRUE(both_end(sent, received));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(received[i].code, Code::ok);
    EXPECT_TRUE(same(targets[i], whole));
  }
}

TEST_P(WithdrawingTransport, AWithdrawnMessageEndsTheReceiveThatHasMetIt) {
  const auto source = pattern(64 * kLarge, 1);
  std::vector<std::byte> target(source.size());
  for (const int rounds : {0, 1, 5, 20}) {
    SCOPED_TRACE(rounds);
    Tracked sent, received;
    send(*a, to_b, 1, source.data(), source.size(), sent);
    settle({a.get(), b.get()});
    recv(*b, 1, target.data(), target.size(), received);
    both_progress(rounds);
    if (!sent.ended()) a->cancel(sent);
    ASSERT_TRUE(both_end(sent, received));
    // The receiver of loopback copies the whole message at once.
    EXPECT_TRUE(rounds > 0 || sent.code == Code::cancelled ||
                GetParam().kind == Subject::Kind::loopback);
    EXPECT_EQ(received.code, sent.code);
    EXPECT_EQ(received.ends, 1);
  }
}

TEST_P(TransportContract, DiscardDropsWhatMatchesAndKeepsTheRest) {
  const std::uint64_t values[3] = {1, 2, 3};
  Tracked sent[3];
  send(*a, to_b, 0x101, &values[0], 8, sent[0]);
  send(*a, to_b, 0x202, &values[1], 8, sent[1]);
  send(*a, to_b, 0x103, &values[2], 8, sent[2]);
  std::size_t dropped = 0;
  ASSERT_TRUE(both_drive([&] { return (dropped += b->discard(0x100, 0xf00)) == 2; }));
  std::uint64_t got = 0;
  Tracked received;
  recv(*b, 0, &got, 8, received, 0);
  ASSERT_TRUE(both_drive(
      [&] { return received.ended() && sent[0].ended() && sent[1].ended() && sent[2].ended(); }));
  EXPECT_EQ(got, 2U);
  settle({a.get(), b.get()});
  EXPECT_EQ(b->discard(0, 0), 0U);
}

TEST_P(TransportContract, DiscardReleasesASenderThatWaits) {
  const auto source = pattern(kLarge, 1);
  Tracked sent;
  send(*a, to_b, 5, source.data(), source.size(), sent);
  settle({a.get(), b.get()});
  EXPECT_FALSE(sent.ended());
  std::size_t dropped = 0;
  ASSERT_TRUE(both_drive([&] {
    dropped += b->discard(5, kExactMatch);
    return sent.ended();
  }));
  EXPECT_EQ(dropped, 1U);
  EXPECT_EQ(sent.code, Code::ok);

  // The endpoint still works.
  std::vector<std::byte> target(kLarge);
  Tracked again, received;
  recv(*b, 6, target.data(), target.size(), received);
  send(*a, to_b, 6, source.data(), source.size(), again);
  ASSERT_TRUE(both_end(again, received));
  EXPECT_TRUE(same(target, source));
}

TEST_P(TransportContract, TooLongAMessageIsAMismatchAndOverrunsNothing) {
  for (const std::uint64_t bytes : {std::uint64_t{16}, std::uint64_t{65536}, kLarge}) {
    for (const bool ahead : {true, false}) {
      SCOPED_TRACE(bytes);
      const auto source = pattern(bytes, 1);
      std::vector<std::byte> target(bytes, std::byte{0x5a});
      Tracked sent, received;
      ASSERT_TRUE(transfer(ahead, source, target.data(), bytes / 2, sent, received));
      EXPECT_EQ(received.code, Code::mismatch);
      EXPECT_EQ(received.bytes, 0U);
      EXPECT_EQ(sent.code, Code::ok);
      EXPECT_TRUE(std::all_of(target.begin() + static_cast<std::ptrdiff_t>(bytes / 2), target.end(),
                              [](std::byte x) { return x == std::byte{0x5a}; }));
    }
  }
}

TEST_P(TransportContract, CloseEndsPendingSendsWithPeerLost) {
  constexpr int kCount = 4;
  std::vector<std::vector<std::byte>> sources;
  std::deque<Tracked> sent(kCount);
  for (int i = 0; i < kCount; ++i) {
    sources.push_back(pattern(kLarge, 1));
    send(*a, to_b, 5, sources.back().data(), kLarge, sent[static_cast<std::size_t>(i)]);
  }
  settle({a.get(), b.get()});
  a->close(to_b);
  ASSERT_TRUE(drive({a.get()}, [&] { return ended(sent); }));
  for (const Tracked& operation : sent) {
    EXPECT_EQ(operation.code, Code::peer_lost);
    EXPECT_EQ(operation.ends, 1);
  }
  // The sources no longer exist: a sanitizer reports any later read of them.
  sources.clear();
  std::vector<std::byte> target(kLarge);
  Tracked received;
  recv(*b, 5, target.data(), target.size(), received);
  settle({a.get(), b.get()});
  // If the receive has matched the announcement of a withdrawn message, it ends when the endpoint
  // is closed. Otherwise it ends when it is cancelled.
  b->cancel(received);
  b->close(to_a);
  ASSERT_TRUE(both_end(received));
  EXPECT_NE(received.code, Code::ok);
}

TEST_P(TransportContract, SendAfterCloseIsPeerLost) {
  a->close(to_b);
  for (const std::uint64_t bytes : {std::uint64_t{8}, kLarge}) {
    const auto source = pattern(bytes, 1);
    Tracked sent;
    send(*a, to_b, 5, source.data(), bytes, sent);
    ASSERT_TRUE(both_end(sent));
    EXPECT_EQ(sent.code, Code::peer_lost);
  }
}

TEST_P(TransportContract, CloseLeavesOtherEndpointsAlone) {
  const EndpointId second = join(*a, *b);
  const auto source = pattern(kLarge, 1);
  std::vector<std::byte> target(kLarge);
  Tracked sent, received;
  send(*a, second, 5, source.data(), kLarge, sent);
  settle({a.get(), b.get()});
  a->close(to_b);
  recv(*b, 5, target.data(), kLarge, received);
  ASSERT_TRUE(both_end(sent, received));
  EXPECT_EQ(sent.code, Code::ok);
  EXPECT_TRUE(same(target, source));
  a->close(second);
}

TEST_P(TransportContract, SendsToADestroyedPeerEndWithPeerLost) {
  // The first message connects the endpoints within the transport's library.
  std::uint64_t word = 1;
  Tracked greeting, greeted;
  recv(*b, 1, &word, 8, greeted);
  send(*a, to_b, 1, &word, 8, greeting);
  ASSERT_TRUE(both_end(greeting, greeted));

  const auto source = pattern(kLarge, 1);
  Tracked before;
  send(*a, to_b, 5, source.data(), source.size(), before);
  settle({a.get(), b.get()});
  b->close(to_a);
  b.reset();
  ASSERT_TRUE(drive({a.get()}, [&] { return before.ended(); }));
  EXPECT_EQ(before.code, Code::peer_lost);
  Tracked after;
  send(*a, to_b, 5, source.data(), source.size(), after);
  ASSERT_TRUE(drive({a.get()}, [&] { return after.ended(); }));
  EXPECT_EQ(after.code, Code::peer_lost);
}

// A send may end while its data waits for room at the peer. flush() must wait for this data.
TEST_P(TransportContract, FlushedMessagesArriveThoughTheirSenderEnds) {
  // shm and tcp buffer a limited amount for receives that are not posted yet. The others have no
  // limit.
  const bool is_bounded =
      GetParam().kind == Subject::Kind::shm || GetParam().kind == Subject::Kind::tcp;
  const std::size_t messages = is_bounded ? 200 : 2000;
  const auto source = pattern(4096, 1);
  std::vector<Tracked> sent(messages);
  for (Tracked& operation : sent) send(*a, to_b, 7, source.data(), source.size(), operation);
  ASSERT_TRUE(both_drive([&] { return a->flush(to_b); }));
  ASSERT_TRUE(drive({a.get()}, [&] { return ended(sent); }));
  a.reset();
  std::vector<std::byte> target(source.size());
  for (std::size_t i = 0; i < messages; ++i) {
    SCOPED_TRACE(i);
    Tracked received;
    recv(*b, 7, target.data(), target.size(), received);
    ASSERT_TRUE(drive({b.get()}, [&] { return received.ended(); }));
    ASSERT_EQ(received.code, Code::ok);
    ASSERT_TRUE(same(target, source));
  }
}

TEST_P(TransportContract, FlushOfNothingIsDone) {
  EXPECT_TRUE(a->flush(to_b));
  a->close(to_b);
  EXPECT_TRUE(a->flush(to_b));
}

TEST_P(TransportContract, LanesAreThoseOfTheReach) {
  std::vector<std::byte> data(kLarge);
  std::vector<std::byte> target(kLarge);
  Tracked sent, received;
  recv(*b, 1, target.data(), kLarge, received);
  send(*a, to_b, 1, data.data(), kLarge, sent);
  ASSERT_TRUE(both_end(sent, received));
  std::vector<std::string> allowed;
  switch (GetParam().kind) {
    case Subject::Kind::loopback: allowed = {"loopback"}; break;
    case Subject::Kind::shm: allowed = {"shm"}; break;
    case Subject::Kind::tcp:
    case Subject::Kind::ucx_tcp: allowed = {"tcp"}; break;
  }
  const auto lanes = a->paths(to_b);
  EXPECT_FALSE(lanes.empty());
  for (const PhysicalPath& lane : lanes) {
    EXPECT_NE(std::find(allowed.begin(), allowed.end(), lane.transport), allowed.end())
        << lane.transport << '/' << lane.device;
    EXPECT_FALSE(lane.device.empty());
  }
}

TEST_P(TransportContract, CountsTheBytesSentPerEndpoint) {
  const EndpointId second = join(*a, *b);
  const auto source = pattern(100, 1);
  std::deque<Tracked> sent(3);
  send(*a, to_b, 1, source.data(), 100, sent[0]);
  send(*a, to_b, 2, source.data(), 20, sent[1]);
  send(*a, second, 3, source.data(), 3, sent[2]);
  EXPECT_EQ(a->traffic(to_b).bytes, 120U);
  EXPECT_EQ(a->traffic(second).bytes, 3U);
  EXPECT_EQ(b->traffic(to_a).bytes, 0U);
  std::size_t dropped = 0;
  ASSERT_TRUE(both_drive([&] { return (dropped += b->discard(0, 0)) == 3; }));
  ASSERT_TRUE(both_end(sent));
  a->close(second);
}

TEST_P(TransportContract, RefusesADamagedAddress) {
  const auto good = a->address();
  EXPECT_EQ(b->connect({}).code(), Code::invalid_argument);
  EXPECT_EQ(b->connect(good.first(good.size() - 1)).code(), Code::invalid_argument);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad(good.begin(), good.end());
    bad[i] ^= std::byte{0x40};
    EXPECT_EQ(b->connect(bad).code(), Code::invalid_argument) << "byte " << i;
  }
}

TEST_P(TransportContract, TwoThreadsExchangeLargeMessagesBothWays) {
  std::atomic<int> finished{0};
  const auto serve = [&](Transport& self, EndpointId peer, std::uint64_t seed) {
    for (std::uint64_t round = 0; round < 10; ++round) {
      const auto source = pattern(kLarge, seed + round);
      std::vector<std::byte> target(source.size());
      Tracked sent, received;
      recv(self, round, target.data(), target.size(), received);
      send(self, peer, round, source.data(), source.size(), sent);
      ASSERT_TRUE(drive({&self}, [&] { return sent.ended() && received.ended(); }));
      ASSERT_TRUE(same(target, pattern(kLarge, 1 - seed + round)));
    }
    // The other side may still need progress of this side.
    ++finished;
    ASSERT_TRUE(drive({&self}, [&] { return finished == 2; }));
  };
  std::thread other([&] { serve(*b, to_a, 1); });
  serve(*a, to_b, 0);
  other.join();
}

std::vector<Subject> withdrawing_subjects() {
  auto subjects = all_subjects();
  // UCX cannot withdraw messages.
  std::erase_if(subjects,
                [](const Subject& subject) { return subject.kind == Subject::Kind::ucx_tcp; });
  return subjects;
}

using ::testing::ValuesIn;
INSTANTIATE_TEST_SUITE_P(On, WithdrawingTransport, ValuesIn(withdrawing_subjects()), label_of);
INSTANTIATE_TEST_SUITE_P(On, TransportContract, ValuesIn(all_subjects()), label_of);

}  // namespace
}  // namespace xylem::transport::testing
