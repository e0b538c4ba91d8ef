// SPDX-License-Identifier: Apache-2.0
//
// PayloadConnections: connections for payload that the ranks of a control plane make on demand.
// Ranks are threads that connect over the loopback interface. The tests check which ranks are
// invited and notified, and what other processes can do at the open port.
#include "runtime/src/bootstrap/payload_connections.h"

#include "runtime/src/bootstrap/control_plane.h"
#include "runtime/src/bootstrap/neighbours.h"
#include "runtime/src/bootstrap/socket.h"
#include "support/control_ranks.h"
#include "support/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

namespace xylem::test {
namespace {

using runtime::bytes_of;
using runtime::ByteSpan;
using runtime::ByteVector;
using runtime::ControlPlane;
using runtime::Handshake;
using runtime::PayloadConnection;
using runtime::SocketAddress;
using runtime::text_of;
using std::chrono::seconds;

/// The addresses on which sockets of this process listen.
std::vector<SocketAddress> listening() {
  std::vector<SocketAddress> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0)
      all.push_back(SocketAddress::of_socket(fd).value());
  }
  return all;
}

SocketAddress peer_of_socket(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  EXPECT_EQ(::getpeername(fd, address, &size), 0);
  return SocketAddress(address);
}

/// Expects that `a` and `b` are the two ends of one connection: addresses and keys agree, and bytes
/// pass in both directions.
void expect_ends_of_one_connection(const PayloadConnection& a, const PayloadConnection& b) {
  EXPECT_EQ(SocketAddress::of_socket(a.socket.get())->to_string(),
            peer_of_socket(b.socket.get()).to_string());
  EXPECT_EQ(a.keys.outgoing, b.keys.incoming);
  EXPECT_EQ(a.keys.incoming, b.keys.outgoing);
  EXPECT_NE(a.keys.outgoing, a.keys.incoming);
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    EXPECT_TRUE(runtime::send_all(from->socket.get(), bytes_of("hello"), soon_enough()));
    ByteVector received(5);
    EXPECT_TRUE(runtime::receive_all(to->socket.get(), received, soon_enough()));
    EXPECT_EQ(text_of(received), "hello");
  }
}

/// A job whose ranks are all served by the thread of the test.
class Job {
 public:
  explicit Job(std::uint32_t size, const std::shared_ptr<Store>& store, const Logger& logger = {})
      : recorders(size) {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      planes_.emplace_back(failure(Code::internal, "not joined"));
      all_.push_back(rank);
    }
    on_each_rank(size, [&](std::uint32_t rank) {
      const auto placement = placement_of(rank, size);
      planes_[rank] = ControlPlane::join(placement, *store, {}, logger, soon_enough());
      EXPECT_TRUE(planes_[rank]) << planes_[rank].status().to_string();
    });
  }
  explicit Job(std::uint32_t size) : Job(size, std::make_shared<MemoryStore>()) {}

  std::uint32_t size() const { return static_cast<std::uint32_t>(recorders.size()); }
  ControlPlane& plane(std::uint32_t rank) { return **planes_[rank]; }
  void kill(std::uint32_t rank) {
    planes_[rank].value().reset();
    std::erase(all_, rank);
  }

  /// Serves `ranks` in turn until `enough` returns true. Returns false if the deadline passes
  /// first.
  bool serve(const std::vector<std::uint32_t>& ranks,
             const std::function<bool()>& enough,
             Deadline deadline = soon_enough()) {
    while (!deadline.passed()) {
      Deadline due = deadline;
      std::vector<pollfd> watched;
      for (const std::uint32_t rank : ranks) {
        due = earlier(due, Deadline::at(plane(rank).serve(recorders[rank])));
        watched.push_back({plane(rank).fd(), POLLIN, 0});
      }
      if (enough()) return true;
      ::poll(watched.data(), watched.size(), due.left_ms());
    }
    return false;
  }
  bool serve_all(const std::function<bool()>& enough) { return serve(all_, enough); }
  /// Serves all ranks until ranks `a` and `b` have connected.
  bool serve_until_met(std::uint32_t a, std::uint32_t b) {
    return serve_all([&] { return connections_of(a, b) > 0 && connections_of(b, a) > 0; });
  }
  /// Serves all ranks until all earlier messages have arrived: each rank floods a message, which
  /// follows all earlier messages on the same connections.
  void settle() {
    const std::string word = "settled " + std::to_string(++settled_);
    for (const std::uint32_t rank : all_) plane(rank).flood(bytes_of(word));
    EXPECT_TRUE(serve_all([&] {
      return std::ranges::all_of(all_, [&](std::uint32_t rank) {
        const auto heard = [&](std::uint32_t origin) {
          return origin == rank || std::ranges::count(recorders[rank].messages[origin], word) == 1;
        };
        return std::ranges::all_of(all_, heard);
      });
    }));
  }

  std::ptrdiff_t connections_of(std::uint32_t rank, std::uint32_t with) const {
    return std::ranges::count(recorders[rank].connected, with, &PayloadConnection::rank);
  }
  const PayloadConnection& connection(std::uint32_t rank, std::uint32_t with) const {
    return *std::ranges::find(recorders[rank].connected, with, &PayloadConnection::rank);
  }

  std::vector<Recorder> recorders;

 private:
  Planes planes_;
  std::vector<std::uint32_t> all_;
  int settled_ = 0;
};

/// Rank 0 invites `guest`. Rank 0's port stays open until `guest` is served.
void open_port(Job& job, std::uint32_t guest = 1) {
  job.plane(0).request_connection(guest);
  ASSERT_TRUE(job.serve({0}, [] { return !listening().empty(); }));
}

TEST(PayloadConnections, OneAsksAndBothMeetOnce) {
  for (const std::uint32_t asker : {0U, 1U}) {
    Job job(2);
    job.plane(asker).request_connection(1 - asker);
    ASSERT_TRUE(job.serve_until_met(0, 1));
    job.settle();
    EXPECT_EQ(job.connections_of(0, 1), 1);
    EXPECT_EQ(job.connections_of(1, 0), 1);
    expect_ends_of_one_connection(job.connection(0, 1), job.connection(1, 0));
    EXPECT_TRUE(listening().empty());
  }
}

TEST(PayloadConnections, NoPortIsOpenBeforeAnybodyAsks) {
  Job job(3);
  job.settle();
  EXPECT_TRUE(listening().empty());
}

TEST(PayloadConnections, AskingAgainDoesNothing) {
  Job job(2);
  for (int i = 0; i < 3; ++i) job.plane(0).request_connection(1);
  ASSERT_TRUE(job.serve_until_met(0, 1));
  for (int i = 0; i < 3; ++i) {
    job.plane(0).request_connection(1);
    job.plane(1).request_connection(0);
    job.settle();
    EXPECT_TRUE(listening().empty());
  }
  EXPECT_EQ(job.recorders[0].connected.size(), 1U);
  EXPECT_EQ(job.recorders[1].connected.size(), 1U);
}

TEST(PayloadConnections, TwoConnectionsHaveDifferentKeys) {
  Job job(3);
  job.plane(0).request_connection(1);
  job.plane(0).request_connection(2);
  ASSERT_TRUE(job.serve_until_met(0, 1));
  ASSERT_TRUE(job.serve_until_met(0, 2));
  const auto& first = job.connection(0, 1).keys;
  const auto& second = job.connection(0, 2).keys;
  const std::set<transport::SealKey> keys = {first.outgoing, first.incoming, second.outgoing,
                                             second.incoming};
  EXPECT_EQ(keys.size(), 4U);
}

// --- All at once ------------------------------------------------------------------

class ConnectionsOf : public testing::TestWithParam<std::uint32_t> {
 protected:
  static std::uint32_t size() { return GetParam(); }

  /// Each rank has its own thread, and calls request_connection() for all ranks for which
  /// `asks(rank, other)` is true. All ranks are served until each has connected to every other
  /// rank.
  static void meet_all(const std::function<bool(std::uint32_t, std::uint32_t)>& asks) {
    Job job(size());
    std::atomic<std::uint32_t> complete = 0;
    on_each_rank(size(), [&](std::uint32_t rank) {
      Recorder& recorder = job.recorders[rank];
      for (std::uint32_t other = 0; other < size(); ++other) {
        if (other != rank && asks(rank, other)) job.plane(rank).request_connection(other);
      }
      EXPECT_TRUE(serve_until(
          job.plane(rank), recorder, [&] { return recorder.connected.size() == size() - 1; },
          soon_enough()))
          << rank << " has met " << recorder.connected.size();
      if (++complete == size()) wake_all(job);
      // Continues until all ranks are complete, since this rank also forwards invitations between
      // others.
      EXPECT_TRUE(serve_until(
          job.plane(rank), recorder, [&] { return complete == size(); }, soon_enough()));
    });
    if (testing::Test::HasFailure()) return;
    job.settle();
    EXPECT_TRUE(listening().empty());
    for (std::uint32_t a = 0; a < size(); ++a) {
      EXPECT_EQ(job.recorders[a].connected.size(), size() - 1);
      for (std::uint32_t b = 0; b < a; ++b) {
        ASSERT_EQ(job.connections_of(a, b), 1);
        ASSERT_EQ(job.connections_of(b, a), 1);
        expect_ends_of_one_connection(job.connection(a, b), job.connection(b, a));
      }
    }
  }

 private:
  /// A request for a rank that is already connected only wakes the control plane.
  static void wake_all(Job& job) {
    for (std::uint32_t rank = 0; rank < size(); ++rank)
      job.plane(rank).request_connection((rank + 1) % size());
  }
};

TEST_P(ConnectionsOf, AllPairsMeetOnceWhereBothAsk) {
  for (int round = 0; round < 4; ++round) meet_all([](auto, auto) { return true; });
}

TEST_P(ConnectionsOf, AllPairsMeetOnceWhoeverAsks) {
  std::uint64_t seed = 11;
  // --gtest_shuffle and --gtest_random_seed draw other cases.
  if (testing::GTEST_FLAG(shuffle))
    seed += static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    std::set<std::pair<std::uint32_t, std::uint32_t>> asking;
    for (std::uint32_t a = 0; a < size(); ++a) {
      for (std::uint32_t b = 0; b < a; ++b) {
        const auto who = random() % 3;
        if (who != 0) asking.emplace(a, b);
        if (who != 1) asking.emplace(b, a);
      }
    }
    meet_all([&](std::uint32_t rank, std::uint32_t other) {
      return asking.contains({rank, other});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConnectionsOf, testing::Values(2, 3, 5, 8));

// --- Far ranks --------------------------------------------------------------------

/// Returns a rank in a job of eight that has no control connection to rank 0.
std::uint32_t far_rank() {
  const auto near = runtime::neighbours(0, 8);
  for (std::uint32_t rank = 1; rank < 8; ++rank) {
    if (std::ranges::find(near, rank) == near.end()) return rank;
  }
  return 0;
}

TEST(PayloadConnections, AnInvitationFindsItsWayOverOthers) {
  const std::uint32_t far = far_rank();
  ASSERT_NE(far, 0U);
  for (const auto& [asker, asked] : {std::pair(0U, far), std::pair(far, 0U)}) {
    Job job(8);
    job.plane(asker).request_connection(asked);
    ASSERT_TRUE(job.serve_until_met(asker, asked));
    job.settle();
    expect_ends_of_one_connection(job.connection(asker, asked), job.connection(asked, asker));
    for (const Recorder& each : job.recorders) EXPECT_LE(each.connected.size(), 1U);
    EXPECT_TRUE(listening().empty());
  }
}

TEST(PayloadConnections, AnInvitationGetsRoundARankThatStandsStill) {
  const std::uint32_t far = far_rank();
  // In at least one of these runs, the rank that is not served is on the invitation's path.
  for (std::uint32_t still = 1; still < 8; ++still) {
    if (still == far) continue;
    Job job(8);
    std::vector<std::uint32_t> served;
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      if (rank != still) served.push_back(rank);
    }
    job.plane(0).request_connection(far);
    EXPECT_TRUE(job.serve(served, [&] {
      return job.connections_of(0, far) == 1 && job.connections_of(far, 0) == 1;
    })) << still;
    job.settle();
    EXPECT_EQ(job.connections_of(0, far), 1);
    EXPECT_EQ(job.connections_of(far, 0), 1);
  }
}

TEST(PayloadConnections, AnInvitationThatComesLateEndsNoCallThatItsHostCountsAsMade) {
  // Rank 0 invites a far rank, and is then not served for some time. So it repeats the invitation
  // later. The second invitation is still under way when the far rank completes the connection.
  const std::uint32_t far = far_rank();
  Job job(8);
  std::vector<std::uint32_t> others;
  for (std::uint32_t rank = 1; rank < 8; ++rank) {
    if (rank != far) others.push_back(rank);
  }
  const auto serve_once = [&](std::uint32_t rank) { job.plane(rank).serve(job.recorders[rank]); };
  open_port(job, far);
  const Deadline still = Deadline::after(std::chrono::milliseconds(2500));
  std::vector<std::uint32_t> all_but_host = others;
  all_but_host.push_back(far);
  EXPECT_FALSE(job.serve(
      all_but_host, [] { return false; }, still))
      << "the ranks are served until the deadline";
  // Rank 0 accepts the connection, repeats the invitation, and continues the handshake.
  for (int turn = 0; turn < 3; ++turn) serve_once(0);
  serve_once(far);
  for (const std::uint32_t rank : others) serve_once(rank);
  serve_once(far);
  ASSERT_TRUE(job.serve_until_met(0, far));
  job.settle();
  expect_ends_of_one_connection(job.connection(0, far), job.connection(far, 0));
}

// --- Strangers --------------------------------------------------------------------

/// Connects to the only port on which this process listens.
UniqueFd call_open_port() {
  const auto open = listening();
  EXPECT_EQ(open.size(), 1U);
  if (open.size() != 1) return {};
  auto fd = runtime::connect_to(open.front(), soon_enough());
  EXPECT_TRUE(fd) << fd.status().to_string();
  return fd ? *std::move(fd) : UniqueFd();
}

/// True if the other end has closed or reset the connection.
bool is_hung_up(const UniqueFd& fd) {
  pollfd entry{fd.get(), POLLIN, 0};
  while (::poll(&entry, 1, 0) > 0) {
    std::array<std::byte, 256> piece;
    if (::recv(fd.get(), piece.data(), piece.size(), MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

/// Expects that ranks 0 and 1 connect in spite of strangers.
void expect_connection(Job& job) {
  ASSERT_TRUE(job.serve_until_met(0, 1));
  job.settle();
  EXPECT_EQ(job.recorders[0].connected.size(), 1U);
  EXPECT_EQ(job.recorders[1].connected.size(), 1U);
  expect_ends_of_one_connection(job.connection(0, 1), job.connection(1, 0));
  EXPECT_TRUE(listening().empty());
}

TEST(PayloadConnections, SilentStrangersKeepNobodyOutAndAreSentAway) {
  Job job(2);
  open_port(job);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(call_open_port());
    // Serving accepts the strangers, so the kernel's queue of connections does not fill.
    job.plane(0).serve(job.recorders[0]);
  }
  // The other strangers are kept, since there is room for them.
  ASSERT_TRUE(job.serve({0}, [&] { return std::ranges::count_if(strangers, is_hung_up) > 100; }));
  expect_connection(job);
  EXPECT_TRUE(job.serve_all([&] { return std::ranges::all_of(strangers, is_hung_up); }));
}

TEST(PayloadConnections, GarbageAtThePortDoesNoHarm) {
  Job job(2);
  open_port(job);
  std::mt19937 random(5);
  std::vector<UniqueFd> strangers;
  for (std::size_t i = 0; i < 60; ++i) {
    ByteVector garbage(Handshake::kPreambleBytes + random() % 300);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    // Half of the strangers send the right magic number, but no valid proof.
    if (i % 2 == 0) {
      std::ranges::copy(bytes_of("\x8cXYLEM\r\n"), garbage.begin());
      garbage.resize(Handshake::kPreambleBytes + Handshake::kProofBytes);
    }
    strangers.push_back(call_open_port());
    EXPECT_TRUE(runtime::send_all(strangers.back().get(), garbage, soon_enough()));
  }
  EXPECT_TRUE(job.serve({0}, [&] { return std::ranges::all_of(strangers, is_hung_up); }));
  expect_connection(job);
}

/// Sends bytes as a stranger. Returns the first `answered` bytes of rank 0's answer.
ByteVector ask_rank(Job& job, const UniqueFd& stranger, ByteSpan bytes, std::size_t answered) {
  EXPECT_TRUE(runtime::send_all(stranger.get(), bytes, soon_enough()));
  ByteVector answer(answered);
  EXPECT_TRUE(job.serve({0}, [&] {
    const ssize_t here =
        ::recv(stranger.get(), answer.data(), answer.size(), MSG_PEEK | MSG_DONTWAIT);
    return here == 0 || here == static_cast<ssize_t>(answer.size());
  }));
  EXPECT_TRUE(runtime::receive_all(stranger.get(), answer, soon_enough()));
  return answer;
}

TEST(PayloadConnections, WhatARankSaysIsNotBelievedWhenItIsRepeatedToIt) {
  Job job(2);
  open_port(job);
  // A preamble is public, and rank 0 answers it with its own preamble. The stranger returns this
  // answer to rank 0: on the same connection in place of a proof, and on another connection as a
  // preamble.
  const UniqueFd first = call_open_port();
  Handshake ignorant(Handshake::Side::caller, runtime::Key("another", "one", {}), {1, 2, {}});
  const ByteVector preamble = ask_rank(job, first, ignorant.preamble(), Handshake::kPreambleBytes);
  const UniqueFd second = call_open_port();
  const ByteVector again = ask_rank(job, second, preamble, Handshake::kPreambleBytes);
  EXPECT_NE(preamble, again);
  for (const UniqueFd* const stranger : {&first, &second}) {
    ByteVector proof = stranger == &first ? again : preamble;
    proof.resize(Handshake::kProofBytes);
    EXPECT_EQ(ask_rank(job, *stranger, proof, Handshake::kProofBytes),
              ByteVector(Handshake::kProofBytes))
        << "a refusal instead of a proof";
    EXPECT_TRUE(job.serve({0}, [&] { return is_hung_up(*stranger); }));
  }
  EXPECT_TRUE(job.recorders[0].connected.empty());
  expect_connection(job);
}

TEST(PayloadConnections, ACrowdOfStrangersIsAtMostALineOfLogASecond) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  const auto logger = Logger::open({LogLevel::warn, path}, {"host", 0, ""});
  ASSERT_TRUE(logger) << logger.status().to_string();
  const auto began = Clock::now();
  {
    Job job(2, std::make_shared<MemoryStore>(), *logger);
    open_port(job);
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 100; ++i) {
      strangers.push_back(call_open_port());
      const ByteVector garbage(Handshake::kPreambleBytes, std::byte{'G'});
      EXPECT_TRUE(runtime::send_all(strangers.back().get(), garbage, soon_enough()));
    }
    ASSERT_TRUE(job.serve({0}, [&] { return std::ranges::all_of(strangers, is_hung_up); }));
    expect_connection(job);
  }
  const auto took = std::chrono::duration_cast<seconds>(Clock::now() - began);
  std::ifstream file(path);
  std::ptrdiff_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_GE(lines, 1);
  // Each of the two ranks may log one line at once, and one line for each second.
  EXPECT_LE(lines, 2 * (took.count() + 1));
}

// --- Members ----------------------------------------------------------------------

/// A store that copies the number of the session, from which a test can derive the job's keys.
class SessionReader final : public Store {
 public:
  Status set(std::string_view key, std::span<const std::byte> value) override {
    if (key.find("session") != std::string_view::npos) session_.assign(value.begin(), value.end());
    return store_.set(key, value);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    return store_.get(key, deadline);
  }
  runtime::Key key(std::string_view purpose) const {
    ByteVector context;
    runtime::WireWriter(context).text("test").raw(session_);
    return runtime::Key(runtime::secret_of_job("test"), purpose, context);
  }

 private:
  MemoryStore store_;
  ByteVector session_;
};

/// Makes a handshake with rank 0 at its open port, as `rank` of the job would.
Status shake_hands(Job& job, std::uint32_t rank, const runtime::Key& key) {
  const UniqueFd fd = call_open_port();
  Handshake handshake(Handshake::Side::caller, key, {rank, job.size(), {}});
  ByteVector out(handshake.preamble().begin(), handshake.preamble().end());
  Status status;
  while (status && handshake.wants() > 0) {
    const ByteVector said = std::exchange(out, {});
    status = handshake.receive(ask_rank(job, fd, said, handshake.wants()), out);
  }
  EXPECT_TRUE(job.serve({0}, [&] { return is_hung_up(fd); })) << "the connection must be closed";
  return status;
}

TEST(PayloadConnections, ARankThatWasNotAskedIsNotTakenForTheOneThatWas) {
  const auto store = std::make_shared<SessionReader>();
  Job job(3, store);
  open_port(job);
  EXPECT_TRUE(shake_hands(job, 2, store->key("xylem payload")));
  EXPECT_TRUE(shake_hands(job, 0, store->key("xylem payload")))
      << "this caller claims to be rank 0 itself";
  EXPECT_TRUE(job.recorders[0].connected.empty());
  expect_connection(job);
}

TEST(PayloadConnections, AKeyOfTheControlPlaneOpensNoConnectionForPayload) {
  const auto store = std::make_shared<SessionReader>();
  Job job(2, store);
  open_port(job);
  EXPECT_EQ(shake_hands(job, 1, store->key("xylem control")).code(), Code::cancelled);
  EXPECT_TRUE(job.recorders[0].connected.empty());
  expect_connection(job);
}

// --- Ends -------------------------------------------------------------------------

TEST(PayloadConnections, NobodyWaitsForARankThatIsLost) {
  Job job(3);
  open_port(job);
  job.kill(1);
  EXPECT_TRUE(job.serve_all([&] { return job.recorders[0].lost.contains(1); }));
  EXPECT_TRUE(listening().empty());
  job.plane(0).request_connection(1);
  job.settle();
  EXPECT_TRUE(listening().empty());
  // The other two ranks still connect.
  job.plane(2).request_connection(0);
  ASSERT_TRUE(job.serve_until_met(0, 2));
  EXPECT_TRUE(job.recorders[0].lost.size() == 1 && job.recorders[2].lost.size() == 1);
}

TEST(PayloadConnections, NobodyWaitsForARankThatHasLeft) {
  Job job(3);
  open_port(job);
  job.plane(1).leave(soon_enough());
  job.kill(1);
  EXPECT_TRUE(job.serve_all([&] { return job.recorders[0].left.contains(1); }));
  EXPECT_TRUE(listening().empty());
  job.plane(0).request_connection(1);
  job.settle();
  EXPECT_TRUE(listening().empty());
  EXPECT_TRUE(job.recorders[0].lost.empty());
  job.plane(0).request_connection(2);
  ASSERT_TRUE(job.serve_until_met(0, 2));
}

TEST(PayloadConnections, ThePortStaysOpenForThoseWhoAreStillAwaited) {
  Job job(3);
  open_port(job);
  job.plane(0).request_connection(2);
  ASSERT_TRUE(job.serve({0, 2}, [&] { return job.connections_of(2, 0) == 1; }));
  EXPECT_EQ(listening().size(), 1U);
  ASSERT_TRUE(job.serve_until_met(0, 1));
  EXPECT_TRUE(listening().empty());
}

TEST(PayloadConnections, ARankThatLeavesListensNoMore) {
  Job job(2);
  open_port(job);
  job.plane(0).leave(Deadline::after(seconds(2)));
  EXPECT_TRUE(listening().empty());
}

// The address sanitizer opens pipes while the program runs, so it needs file descriptors.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define XYLEM_TEST_NEEDS_DESCRIPTORS
#endif
#endif
#ifndef XYLEM_TEST_NEEDS_DESCRIPTORS

/// While an object of this class exists, the process cannot open a file descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    // Not 0, since poll() refuses more entries than this limit.
    const rlimit none{3, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(PayloadConnections, WhereDescriptorsHaveRunOutFiveAttemptsFail) {
  Job job(3);
  Recorder& asker = job.recorders[0];
  const auto began = Clock::now();
  {
    const NoDescriptors while_it_asks;
    job.plane(0).request_connection(1);
    ASSERT_TRUE(job.serve({0}, [&] { return asker.failed.contains(1); }));
  }
  EXPECT_EQ(asker.failed[1].code(), Code::exhausted) << asker.failed[1].to_string();
  // The rank tries once a second.
  EXPECT_GE(Clock::now() - began, seconds(4));
  EXPECT_LT(Clock::now() - began, seconds(10));
  EXPECT_TRUE(asker.connected.empty());
  // The other two ranks still connect.
  job.plane(0).request_connection(2);
  ASSERT_TRUE(job.serve_until_met(0, 2));
}

#endif

TEST(PayloadConnections, ARankThatIsCalledAndLostLeavesNothingOpen) {
  // Rank 1 is connecting to rank 0. Rank 0 is not served, and then ends.
  Job job(3);
  open_port(job);
  ASSERT_EQ(listening().size(), 1U);
  // The invitation has been sent. Rank 1 connects, and gets no answer.
  for (int i = 0; i < 3; ++i) job.plane(1).serve(job.recorders[1]);
  job.kill(0);
  EXPECT_TRUE(listening().empty());
  EXPECT_TRUE(job.serve_all([&] { return job.recorders[1].lost.contains(0); }));
  job.plane(1).request_connection(2);
  ASSERT_TRUE(job.serve_until_met(1, 2));
  EXPECT_EQ(job.recorders[1].connected.size(), 1U);
  EXPECT_TRUE(listening().empty());
}

}  // namespace
}  // namespace xylem::test
