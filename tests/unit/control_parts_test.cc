// SPDX-License-Identifier: Apache-2.0
//
// The parts of start-up, tested without threads: handshake, frames, gather, floods, neighbours,
// choice of interface, ranks that have joined, silent hosts.
#include "runtime/src/bootstrap/bruck_gather.h"
#include "runtime/src/bootstrap/card.h"
#include "runtime/src/bootstrap/control_frame.h"
#include "runtime/src/bootstrap/control_news.h"
#include "runtime/src/bootstrap/gather_inbox.h"
#include "runtime/src/bootstrap/handshake.h"
#include "runtime/src/bootstrap/interface.h"
#include "runtime/src/bootstrap/neighbours.h"
#include "runtime/src/bootstrap/rank_set.h"
#include "runtime/src/bootstrap/socket.h"
#include "support/outcome.h"
#include "xylem/base/silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Key key_of(std::string_view secret) { return Key(secret, "test", {}); }

/// The two sides of one handshake.
struct Pair {
  Handshake caller, callee;
  Status caller_status, callee_status;

  Pair(const Key& a,
       const Key& b,
       const Member& x = {0, 2, {}},
       const Member& y = {1, 2, {}},
       const Dialect& u = {},
       const Dialect& v = {})
      : caller(Handshake::Side::caller, a, x, u), callee(Handshake::Side::callee, b, y, v) {}

  /// Passes bytes between the two sides until both are done or one side fails.
  void run() {
    ByteVector to_callee(caller.preamble().begin(), caller.preamble().end());
    ByteVector to_caller;
    for (int i = 0; i < 4; ++i) {
      step(callee, callee_status, to_callee, to_caller);
      step(caller, caller_status, to_caller, to_callee);
    }
  }

 private:
  static void step(Handshake& each, Status& status, ByteVector& in, ByteVector& out) {
    const std::size_t wanted = each.wants();
    if (!status || wanted == 0 || in.size() < wanted) return;
    status = each.receive(std::span(in).first(wanted), out);
    in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(wanted));
  }
};

TEST(Handshake, MembersLearnWhoTheOtherIs) {
  Member x{3, 8, HostIdentity::of_this_process()};
  Pair pair(key_of("s"), key_of("s"), x, {5, 8, {}});
  pair.run();
  ASSERT_EQ(pair.caller.state(), Handshake::State::done);
  ASSERT_EQ(pair.callee.state(), Handshake::State::done);
  EXPECT_EQ(pair.caller.peer().rank, 5U);
  EXPECT_EQ(pair.callee.peer().rank, 3U);
  EXPECT_EQ(pair.callee.peer().host.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(pair.callee.peer().host.same_processes(x.host));
}

TEST(Handshake, AnotherSecretIsRefusedBeforeAnythingIsBelieved) {
  Pair pair(key_of("right"), key_of("wrong"), {0, 2, {}}, {1, 3, {}}, {}, {7, "9.9.9"});
  pair.run();
  EXPECT_EQ(pair.callee_status.code(), Code::cancelled);
  EXPECT_EQ(pair.callee.peer().rank, 0U) << "not read";
  EXPECT_EQ(pair.caller_status.code(), Code::cancelled);
}

TEST(Handshake, AnotherVersionNamesBothOnBothSides) {
  Pair pair(key_of("s"), key_of("s"), {0, 2, {}}, {1, 2, {}}, {1, "0.1.0"}, {2, "9.9.9"});
  pair.run();
  for (const Status& status : {pair.caller_status, pair.callee_status}) {
    EXPECT_THAT(status, fails_as(Code::mismatch, "0.1.0", "9.9.9", "protocol 2"));
  }
  EXPECT_EQ(pair.caller_status.peer(), 1U);
  EXPECT_EQ(pair.callee_status.peer(), 0U);
}

TEST(Handshake, AJobOfAnotherSizeIsAMismatch) {
  Pair pair(key_of("s"), key_of("s"), {0, 2, {}}, {1, 3, {}});
  pair.run();
  EXPECT_THAT(pair.caller_status, fails_as(Code::mismatch, "job of 3 ranks", "one of 2"));
}

TEST(Handshake, AStrangersBytesAreNoPreamble) {
  Handshake callee(Handshake::Side::callee, key_of("s"), {0, 2, {}});
  ByteVector out;
  const ByteVector http(Handshake::kPreambleBytes, std::byte{'G'});
  EXPECT_EQ(callee.receive(http, out).code(), Code::unsupported);
  EXPECT_TRUE(out.empty());
}

TEST(Handshake, AProofCanBeNeitherReflectedNorReplayed) {
  const Key key = key_of("s");
  // An attacker without a key returns the caller's own proof to the caller.
  Handshake caller(Handshake::Side::caller, key, {0, 2, {}});
  ByteVector proof;
  ASSERT_TRUE(
      caller.receive(ByteVector(caller.preamble().begin(), caller.preamble().end()), proof));
  ByteVector out;
  EXPECT_EQ(caller.receive(proof, out).code(), Code::cancelled);

  // An attacker replays an earlier handshake.
  Handshake earlier(Handshake::Side::caller, key, {1, 2, {}});
  Handshake first(Handshake::Side::callee, key, {0, 2, {}});
  ByteVector recorded;
  ASSERT_TRUE(earlier.receive(first.preamble(), recorded));
  Handshake second(Handshake::Side::callee, key, {0, 2, {}});
  ASSERT_TRUE(second.receive(earlier.preamble(), out));
  EXPECT_EQ(second.receive(recorded, out).code(), Code::cancelled);
}

TEST(Handshake, EveryFlippedBitOfAProofIsSeen) {
  const Key key = key_of("s");
  for (std::size_t i = 0; i < Handshake::kProofBytes; ++i) {
    Handshake caller(Handshake::Side::caller, key, {0, 2, {}});
    Handshake callee(Handshake::Side::callee, key, {1, 2, {}});
    ByteVector proof;
    ByteVector out;
    ASSERT_TRUE(caller.receive(callee.preamble(), proof));
    ASSERT_TRUE(callee.receive(caller.preamble(), out));
    proof[i] ^= std::byte{1};
    EXPECT_EQ(callee.receive(proof, out).code(), Code::cancelled) << i;
  }
}

TEST(Key, ServesOnePurposeOnly) {
  const Nonce context = make_nonce();
  const Proof proof = Key("s", "store", context).prove({});
  EXPECT_TRUE(Key("s", "store", context).verify({}, proof));
  EXPECT_FALSE(Key("s", "control", context).verify({}, proof));
  EXPECT_FALSE(Key("s", "store", make_nonce()).verify({}, proof));
  EXPECT_FALSE(Key("t", "store", context).verify({}, proof));
  EXPECT_FALSE(Key("s", "store", context).verify({}, std::span(proof).first(31)));
}

TEST(Card, ComesBackAsItWasWritten) {
  const Card card{
      {}, HostIdentity::of_this_process(), SocketAddress::parse("fd00::2", 4711).value()};
  const auto read = value_of(Card::read(card.write()));
  EXPECT_EQ(read.address.to_string(), "[fd00::2]:4711");
  EXPECT_TRUE(read.host.same_processes(card.host));
  EXPECT_EQ(read.dialect.library, XYLEM_VERSION);

  const Card newer{{9, "9.0"}, {}, card.address};
  EXPECT_EQ(Card::read(newer.write())->dialect.library, "9.0");
  ByteVector shortened = card.write();
  shortened.pop_back();
  EXPECT_FALSE(Card::read(shortened));
}

TEST(FrameReader, CutsAStreamWhereverItIsBroken) {
  ByteVector stream;
  write_frame(stream, MessageFrame{1, 2, 3, 4, bytes_of("hello")});
  write_frame(stream, LostFrame{3, "reset"});
  write_frame(stream, LeftFrame{4});
  write_frame(stream, FailedFrame{Code::timed_out, 5, "late"});
  write_frame(stream, GatherFrame{6, 7, true, bytes_of("piece")});
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    FrameReader reader;
    std::vector<std::size_t> kinds;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      reader.append(ByteSpan(stream).subspan(at, std::min(step, stream.size() - at)));
      for (;;) {
        const auto frame = value_of(reader.next());
        if (!frame.has_value()) break;
        kinds.push_back(frame->index());
        if (const auto* const failed = std::get_if<FailedFrame>(&*frame)) {
          EXPECT_EQ(failed->code, Code::timed_out);
          EXPECT_EQ(failed->peer, 5U);
          EXPECT_EQ(failed->message, "late");
        }
      }
    }
    EXPECT_THAT(kinds, ElementsAre(0, 1, 2, 3, 4)) << step;
  }
}

TEST(FrameReader, RefusesWhatIsTooLongOrNoFrame) {
  ByteVector huge;
  WireWriter(huge).number(std::uint32_t{0xffffffff}).number(std::uint8_t{1});
  ByteVector unknown;
  WireWriter(unknown).number(std::uint32_t{0}).number(std::uint8_t{99});
  ByteVector truncated;
  WireWriter(truncated).number(std::uint32_t{2}).number(std::uint8_t{3}).number(std::uint16_t{0});
  for (const ByteVector& bytes : {huge, unknown, truncated}) {
    FrameReader reader;
    reader.append(bytes);
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.next()) << "for ever";
  }
}

TEST(BruckGather, GathersFromAnyNumberOfRanksInLogarithmicRounds) {
  for (const std::uint32_t size : {1U, 2U, 3U, 5U, 8U, 11U, 64U, 100U}) {
    std::vector<BruckGather> ranks;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      ranks.emplace_back(rank, size, bytes_of(std::string(rank % 7, 'x') + std::to_string(rank)));
    }
    unsigned rounds = 0;
    for (; !ranks[0].is_done(); ++rounds) {
      // In each round, all ranks send before any of them receives. Receiving begins the next round.
      std::map<std::uint32_t, ByteVector> arrived;
      for (const BruckGather& each : ranks) arrived[each.send_to()] = each.outgoing();
      ASSERT_EQ(arrived.size(), size);
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(ranks[rank].take(arrived[rank]));
      }
    }
    EXPECT_GE(1U << rounds, size);
    EXPECT_TRUE(rounds == 0 || 1U << (rounds - 1) < size);
    for (BruckGather& each : ranks) {
      const auto values = each.take_result();
      ASSERT_EQ(values.size(), size);
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        EXPECT_EQ(text_of(values[rank]), std::string(rank % 7, 'x') + std::to_string(rank));
      }
    }
  }
}

TEST(BruckGather, RefusesBytesThatAreNotItsBlocks) {
  BruckGather gather(0, 2, bytes_of("a"));
  const ByteVector valid = BruckGather(1, 2, bytes_of("b")).outgoing();
  ByteVector longer = valid;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(BruckGather(0, 2, {}).take(longer));
  EXPECT_FALSE(BruckGather(0, 2, {}).take({}));
  EXPECT_TRUE(gather.take(valid));
}

TEST(Neighbours, AreMutualAndFewAndHoldTheRing) {
  for (const std::uint32_t size : {1U, 2U, 3U, 4U, 5U, 8U, 33U, 100U}) {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const auto mine = neighbours(rank, size);
      EXPECT_TRUE(size == 1 || std::ranges::count(mine, (rank + 1) % size) == 1);
      EXPECT_LE(mine.size(), 14U);
      for (const std::uint32_t other : mine) {
        ASSERT_NE(other, rank);
        const auto theirs = neighbours(other, size);
        EXPECT_EQ(std::ranges::count(theirs, rank), 1) << rank << " " << other;
      }
    }
  }
}

/// The number of ranks that can be reached from the first living rank, over living ranks.
std::size_t reachable(std::uint32_t size, const std::vector<std::uint32_t>& dead) {
  std::vector<bool> seen(size, false);
  for (const std::uint32_t rank : dead) seen[rank] = true;
  const auto start = static_cast<std::uint32_t>(std::ranges::find(seen, false) - seen.begin());
  std::deque<std::uint32_t> queue = {start};
  seen[start] = true;
  std::size_t count = 0;
  for (; !queue.empty(); ++count) {
    const std::uint32_t rank = queue.front();
    queue.pop_front();
    for (const std::uint32_t other : neighbours(rank, size)) {
      if (!seen[other]) {
        seen[other] = true;
        queue.push_back(other);
      }
    }
  }
  return count;
}

TEST(Neighbours, StayConnectedWhenAnyTwoDie) {
  for (const std::uint32_t size : {5U, 8U, 13U, 32U}) {
    for (std::uint32_t a = 0; a < size; ++a) {
      for (std::uint32_t b = a + 1; b < size; ++b) EXPECT_EQ(reachable(size, {a, b}), size - 2);
    }
  }
}

TEST(RankSet, SaysWhoIsMissingAndWhoIsHere) {
  RankSet joined(4);
  for (const std::uint32_t rank : {0U, 1U, 2U}) joined.add(rank);
  EXPECT_FALSE(joined.complete());
  const Status status = joined.missing_error();
  EXPECT_THAT(status, AllOf(fails_as(Code::timed_out), blames(3U)));
  EXPECT_THAT(std::string(status.message()),
              testing::MatchesRegex("rank 3 did not come within .*; 0, 1, 2 are here"));
}

// --- Interfaces ---------------------------------------------------------------

std::vector<Interface> machine() {
  const auto at = [](const char* name, const char* address) {
    return Interface{name, SocketAddress::parse(address, 0).value()};
  };
  return {at("lo", "127.0.0.1"), at("docker0", "172.17.0.1"), at("eth0", "10.0.0.5"),
          at("eth0", "fd00::5"), at("ib0", "10.1.0.5")};
}

RendezvousHost towards(const char* name, const char* route, bool loopback = false) {
  return {name, SocketAddress::parse(route, 0).value(), loopback};
}

TEST(InterfaceChoice, DefaultsToTheOneTowardsTheRendezvous) {
  const auto choice = value_of(choose_interface(machine(), "", towards("node1", "10.1.0.5")));
  EXPECT_EQ(choice.chosen.name, "ib0");
  EXPECT_EQ(choice.reason, "routes to node1");
  EXPECT_EQ(choose_interface(machine(), "", towards("", "fd00::5"))->chosen.address.host(),
            "fd00::5");
  EXPECT_EQ(choose_interface(machine(), "", towards("", "10.0.0.5"))->reason, "the default route");
}

TEST(InterfaceChoice, TakesLoopbackOnlyForALoopbackRendezvous) {
  EXPECT_EQ(choose_interface(machine(), "", towards("127.0.0.1", "127.0.0.1", true))->chosen.name,
            "lo");
  // A host whose own name resolves to 127.0.1.1. Other hosts could not connect to this address.
  EXPECT_EQ(choose_interface(machine(), "", towards("this-host", "127.0.0.1", false))->chosen.name,
            "eth0");
}

TEST(InterfaceChoice, NeverGuessesABridgeOfContainers) {
  EXPECT_EQ(choose_interface(machine(), "", {})->chosen.name, "eth0");
  std::vector<Interface> lonely = machine();
  lonely.erase(lonely.begin() + 2, lonely.end());
  const auto choice = choose_interface(lonely, "", {});
  EXPECT_EQ(choice->chosen.name, "lo");
  EXPECT_THAT(choice->reason, HasSubstr("all ranks must be on this host"));
}

TEST(InterfaceChoice, FollowsTheSetting) {
  const auto rendezvous = towards("node1", "10.0.0.5");
  EXPECT_EQ(choose_interface(machine(), "ib0,eth0", rendezvous)->chosen.name, "ib0");
  EXPECT_EQ(choose_interface(machine(), "lo", rendezvous)->chosen.name, "lo");
  EXPECT_EQ(choose_interface(machine(), "docker0", rendezvous)->chosen.name, "docker0");
  EXPECT_EQ(choose_interface(machine(), "^eth0", rendezvous)->chosen.name, "ib0");
  EXPECT_EQ(choose_interface(machine(), "eth0", towards("", "fd00::5"))->chosen.address.host(),
            "fd00::5");
}

TEST(InterfaceChoice, ListsOthersLikeTheChosenOne) {
  const auto others = [](const std::vector<Interface>& all, const char* setting,
                         const char* route) {
    std::vector<std::string> names;
    const auto choice = value_of(choose_interface(all, setting, towards("node1", route)));
    for (const Interface& each : choice.others)
      names.push_back(each.name + " " + each.address.host());
    return names;
  };
  using Names = std::vector<std::string>;
  std::vector<Interface> all = machine();
  EXPECT_EQ(others(all, "", "10.0.0.5"), Names{}) << "not known to be network cards";
  EXPECT_EQ(others(all, "eth0,ib0", "10.0.0.5"), Names{"ib0 10.1.0.5"}) << "but they are named";
  EXPECT_EQ(others(all, "ib0,docker0", "10.1.0.5"), Names{"docker0 172.17.0.1"});
  EXPECT_EQ(others(all, "lo,eth0", "127.0.0.1"), Names{});
  for (Interface& each : all) {
    if (each.name == "eth0" || each.name == "ib0") each.card = "1000 Mb/s, MTU 1500";
  }
  EXPECT_EQ(others(all, "", "10.0.0.5"), Names{"ib0 10.1.0.5"});
  EXPECT_EQ(others(all, "", "fd00::5"), Names{}) << "ib0 has no address of this family";
  EXPECT_EQ(others(all, "eth0", "10.0.0.5"), Names{});
  EXPECT_EQ(others(all, "^ib0", "10.0.0.5"), Names{});
  all.back().address = SocketAddress::parse("203.0.113.5", 0).value();
  EXPECT_EQ(others(all, "", "10.0.0.5"), Names{}) << "its address is public";
  all.back() = {"ib0", machine().back().address, "", "1000 Mb/s, MTU 9000"};
  EXPECT_EQ(others(all, "", "10.0.0.5"), Names{}) << "the MTUs differ";
}

TEST(InterfaceChoice, NamesWhatThereIsWhenNothingIsLeft) {
  // The system lists IPv6 addresses after all IPv4 addresses.
  std::vector<Interface> all = machine();
  all.push_back({"lo", SocketAddress::parse("::1", 0).value()});
  const auto choice = choose_interface(all, "eth7", {});
  EXPECT_EQ(choice.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(choice.status().message()),
              AllOf(HasSubstr("eth7"), testing::EndsWith(" has lo, docker0, eth0, ib0")));
  EXPECT_FALSE(choose_interface(machine(), "^lo,docker0,eth0,ib0", {}));
  for (const char* setting : {"", "eth7"}) {
    EXPECT_THAT(choose_interface({}, setting, {}),
                fails_as(Code::invalid_argument, "ip link set lo up"));
  }
}

TEST(InterfaceChoice, FindsTheRouteOfThisMachine) {
  const auto rendezvous =
      value_of(find_rendezvous_host("127.0.0.1", Deadline::after(std::chrono::seconds(10))));
  EXPECT_TRUE(rendezvous.is_loopback);
  const auto interfaces = value_of(list_interfaces());
  EXPECT_EQ(choose_interface(interfaces, "", rendezvous)->chosen.address.host(), "127.0.0.1");
}

// --- Hosts that do not answer -----------------------------------------------------

/// The times at which the first end of a connection sends, in milliseconds since the begin of the
/// test.
struct Traffic {
  int first = -1;  ///< -1: never.
  int every = 0;   ///< 0: once.
};

/// A connection over the loopback interface whose packets are dropped for a while.
class DroppingConnection {
 public:
  /// Drops packets from time `begins` on, for the duration `lasts`. Both are in milliseconds.
  DroppingConnection(int begins, int lasts, Traffic traffic)
      : begins_(begins), heals_(begins + lasts), traffic_(traffic), next_(traffic.first) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    const auto listener = listen_on(*SocketAddress::parse("127.0.0.1", 0));
    auto caller = connect_to(*SocketAddress::of_socket(listener->get()), deadline);
    if (!caller || !wait_for(listener->get(), POLLIN, deadline)) return;
    ends_ = {std::move(*caller), std::move(*accept_from(listener->get()))};
    for (const UniqueFd& end : ends_) keep_alive(end.get());
  }

  /// Starts or stops dropping packets, and sends, as planned for the time `now`, in milliseconds
  /// since the begin of the test.
  void advance(int now) {
    if (!drops_ && now >= begins_ && now < heals_) drop(true);
    if (drops_ && now >= heals_) drop(false);
    if (next_ >= 0 && now >= next_) {
      next_ = traffic_.every > 0 ? next_ + traffic_.every : -1;
      std::array<std::byte, 100> bytes{};
      (void)::send(ends_[0].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const bool has_failed = connect_outcome(ends_[i].get()) != 0;
      if (!lost_at_[i] && (has_failed || silences_[i].silent_for(ends_[i].get(), Clock::now()))) {
        lost_at_[i] = now;
      }
    }
  }

  /// The times at which the two ends were found to be silent, in milliseconds after the first
  /// packet was dropped.
  std::vector<int> lost_after() const {
    std::vector<int> after;
    for (const auto& at : lost_at_) {
      if (at) after.push_back(*at - begins_);
    }
    return after;
  }
  bool is_acknowledged() const {
    int left = 0;
    return ::ioctl(ends_[0].get(), SIOCOUTQ, &left) == 0 && left == 0;
  }
  std::string name() const {
    return "silent for " + std::to_string(heals_ - begins_) + " ms from " +
           std::to_string(begins_) + " on, sends at " + std::to_string(traffic_.first) +
           " and every " + std::to_string(traffic_.every) + " ms";
  }

 private:
  void drop(bool drops) {
    drops_ = drops;
    sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog filter{1, nothing};
    for (const UniqueFd& end : ends_) {
      ::setsockopt(end.get(), SOL_SOCKET, drops ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &filter,
                   sizeof filter);
    }
  }

  int begins_, heals_;
  Traffic traffic_;
  int next_;
  bool drops_ = false;
  std::array<UniqueFd, 2> ends_;
  std::array<Silence, 2> silences_;
  std::array<std::optional<int>, 2> lost_at_;
};

/// Advances all connections for `milliseconds` of real time.
void run(std::vector<DroppingConnection>& connections, int milliseconds) {
  const auto began = Clock::now();
  for (int now = 0; now < milliseconds;) {
    for (DroppingConnection& each : connections) each.advance(now);
    ::poll(nullptr, 0, 50);
    now = static_cast<int>(
        std::chrono::floor<std::chrono::milliseconds>(Clock::now() - began).count());
  }
}

/// The connection is idle; it has bytes in flight when the silence begins; it first sends during
/// the silence; or it sends all the time.
const std::vector<Traffic> kTraffic = {{-1, 0}, {990, 0}, {1500, 0}, {2800, 0}, {4000, 0}, {0, 20}};

TEST(Silence, OfLessThanTheLimitEndsNoConnection) {
  std::vector<DroppingConnection> connections;
  for (const int lasts : {1000, 2500, 3500, 4000, 4500, 4900}) {
    for (const Traffic& traffic : kTraffic) {
      for (const int begins : {1000, 1400}) connections.emplace_back(begins, lasts, traffic);
    }
  }
  run(connections, 9000);
  for (const DroppingConnection& each : connections) {
    EXPECT_THAT(each.lost_after(), testing::IsEmpty()) << each.name();
    EXPECT_TRUE(each.is_acknowledged()) << each.name();
  }
}

TEST(Silence, OfMoreThanTheLimitIsFoundWithinThePromisedTime) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  constexpr int kMostBetweenRepetitions = 44, kSecond = 1000;  // TCP_RTO_MAX_MS, since Linux 6.15.
  const bool asks_often = ::setsockopt(socket.get(), IPPROTO_TCP, kMostBetweenRepetitions, &kSecond,
                                       sizeof kSecond) == 0;
  const int promised = asks_often ? 9000 : 12'000;
  std::vector<DroppingConnection> connections;
  for (const Traffic& traffic : kTraffic) {
    for (const int begins : {1000, 1400}) connections.emplace_back(begins, 60'000, traffic);
  }
  run(connections, 1500 + promised);
  for (const DroppingConnection& each : connections) {
    EXPECT_THAT(each.lost_after(), AllOf(testing::SizeIs(2), testing::Each(testing::Gt(5000)),
                                         testing::Each(testing::Le(promised))))
        << each.name();
  }
}

TEST(GatherInbox, TakesOnlyWhatANeighbourHasToSend) {
  // Rank 2 of 8 receives from ranks 3, 4 and 6.
  GatherInbox inbox(2, 8);
  const ByteVector bytes(3);
  const auto hear = [&](std::uint32_t from, std::uint32_t gather, std::uint8_t round, bool last) {
    return inbox.add(from, GatherFrame{gather, round, last, bytes});
  };
  EXPECT_TRUE(hear(3, 0, 0, false)) << "a neighbour may be in the next gather";
  EXPECT_FALSE(hear(3, 1, 0, false)) << "but no further";
  EXPECT_FALSE(hear(4, 0, 0, false)) << "this round comes from rank 3";
  EXPECT_TRUE(hear(4, 0, 1, false));
  EXPECT_FALSE(hear(3, 0, 32, false));

  EXPECT_EQ(inbox.begin(), 0U);
  EXPECT_FALSE(inbox.incoming(0, 0).is_complete);
  EXPECT_TRUE(hear(3, 0, 0, true));
  EXPECT_TRUE(inbox.incoming(0, 0).is_complete);
  EXPECT_EQ(inbox.incoming(0, 0).bytes.size(), 6U);
  EXPECT_FALSE(hear(3, 0, 0, true)) << "nothing follows the last piece";
  EXPECT_TRUE(hear(3, 1, 0, true));
  inbox.forget(0, 0);
  EXPECT_TRUE(inbox.incoming(0, 0).bytes.empty());
}

TEST(ControlNews, AreNewOnce) {
  ControlNews news(3);
  EXPECT_TRUE(news.record_message(1, 1));
  EXPECT_FALSE(news.record_message(1, 1));
  EXPECT_TRUE(news.record_message(2, 1));
  EXPECT_TRUE(news.record_message(1, 5));
  EXPECT_FALSE(news.record_message(1, 4));
  EXPECT_TRUE(news.record_invitation(1, 1)) << "invitations have numbers of their own";
  EXPECT_FALSE(news.record_invitation(1, 1));
  EXPECT_TRUE(news.end(1, Presence::left));
  EXPECT_FALSE(news.end(1, Presence::lost));
  EXPECT_EQ(news.presence(1), Presence::left);
  EXPECT_EQ(news.presence(2), Presence::here);
}

TEST(ControlNews, TopicsAreNewAgainAfterAWhile) {
  ControlNews news(3);
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(news.record_topic(7, begin));
  EXPECT_TRUE(news.record_topic(8, begin + ControlPlane::kSameTopic / 2));
  EXPECT_FALSE(news.record_topic(7, begin + ControlPlane::kSameTopic));
  EXPECT_TRUE(news.record_topic(7, begin + ControlPlane::kSameTopic + Clock::duration(1)));
  EXPECT_FALSE(news.record_topic(8, begin + ControlPlane::kSameTopic + Clock::duration(1)));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(news.record_topic(ControlPlane::kNoTopic, begin));
}

}  // namespace
}  // namespace xylem::runtime
