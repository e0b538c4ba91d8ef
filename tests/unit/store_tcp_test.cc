// SPDX-License-Identifier: Apache-2.0
//
// The store that rank 0 serves over TCP: storing values, refusing connections, and naming missing
// ranks.
#include "runtime/src/bootstrap/handshake.h"
#include "runtime/src/bootstrap/socket.h"
#include "runtime/src/bootstrap/store_rules.h"
#include "runtime/src/bootstrap/tcp_store.h"
#include "support/control_ranks.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

namespace xylem::test {
namespace {

using runtime::bytes_of;
using runtime::ByteVector;
using runtime::Handshake;
using runtime::Key;
using runtime::SocketAddress;
using runtime::TcpStore;
using runtime::TcpStoreAddress;
using runtime::text_of;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;

using MaybeStore = Result<std::shared_ptr<Store>>;

/// A port that is currently free.
std::uint16_t free_port() {
  const auto listener = runtime::listen_on(SocketAddress::any(AF_INET, 0));
  return SocketAddress::of_socket(listener->get())->port();
}

TcpStoreAddress at(const std::string& host, std::uint16_t port) { return {host, {port}, true}; }

MaybeStore open(const TcpStoreAddress& store_address,
                const runtime::Placement& placement,
                Deadline deadline = soon_enough()) {
  return TcpStore::open(store_address, placement, {}, deadline);
}

Key store_key(const runtime::Placement& placement) {
  return Key(placement.secret, "xylem store", bytes_of(placement.job));
}

/// Connects to the server of a store, makes a handshake, and closes the connection without a
/// goodbye, like a killed process. Returns the outcome of the handshake.
Status shake_hands(const TcpStoreAddress& store_address, Handshake handshake) {
  const auto address = SocketAddress::parse("127.0.0.1", store_address.ports[0]).value();
  auto fd = runtime::connect_to(address, soon_enough());
  while (!fd) fd = runtime::connect_to(address, soon_enough());
  ByteVector out(handshake.preamble().begin(), handshake.preamble().end());
  while (handshake.state() != Handshake::State::done) {
    XYLEM_TRY(runtime::send_all(fd->get(), out, soon_enough()));
    out.clear();
    ByteVector in(handshake.wants());
    XYLEM_TRY(runtime::receive_all(fd->get(), in, soon_enough()));
    XYLEM_TRY(handshake.receive(in, out));
  }
  return {};
}

TEST(TcpStore, GivesEveryRankWhatAnyRankSet) {
  for (const std::uint32_t size : {2U, 3U, 8U}) {
    const TcpStoreAddress store_address = at("127.0.0.1", free_port());
    on_each_rank(size, [&](std::uint32_t rank) {
      const auto store = value_of(open(store_address, placement_of(rank, size)));
      const std::string value(rank == 0 ? 0 : runtime::kLargestValue,
                              static_cast<char>('a' + rank));
      ASSERT_TRUE(store->set("from." + std::to_string(rank), bytes_of(value)));
      for (std::uint32_t other = 0; other < size; ++other) {
        const auto got = value_of(store->get("from." + std::to_string(other), soon_enough()));
        EXPECT_EQ(got.size(), other == 0 ? 0 : runtime::kLargestValue);
        EXPECT_TRUE(std::ranges::all_of(
            got, [&](std::byte b) { return b == static_cast<std::byte>('a' + other); }));
      }
      finish(*store, rank, size);
    });
  }
}

/// A whole start: each rank sets a value, and gets the values of all ranks.
void start(const TcpStoreAddress& store_address, std::uint32_t size, const std::string& job) {
  on_each_rank(size, [&](std::uint32_t rank) {
    const auto store = value_of(open(store_address, placement_of(rank, size, job)));
    ASSERT_TRUE(store->set(std::to_string(rank), bytes_of(job)));
    for (std::uint32_t other = 0; other < size; ++other) {
      EXPECT_EQ(text_of(value_of(store->get(std::to_string(other), soon_enough()))), job);
    }
    finish(*store, rank, size);
  });
}

TEST(TcpStore, MeetsAtNamesAndIpv6) {
  for (const char* const host : {"localhost", "::1", "127.0.0.1"}) {
    const TcpStoreAddress store_address = at(host, free_port());
    if (std::string_view(host) == "::1" &&
        !runtime::listen_on(SocketAddress::parse("::1", 0).value()))
      continue;
    start(store_address, 2, "job");
  }
}

TEST(TcpStore, AGetWaitsUntilTheKeyIsSet) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  std::atomic<bool> is_set = false;
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = value_of(open(store_address, placement_of(rank, 2)));
    if (rank == 0) {
      ASSERT_TRUE(store->get("ready", soon_enough()));
      is_set = true;
      ASSERT_TRUE(store->set("late", bytes_of("v")));
    } else {
      ASSERT_TRUE(store->set("ready", {}));
      EXPECT_EQ(text_of(store->get("late", soon_enough()).value()), "v");
      EXPECT_TRUE(is_set);
    }
    finish(*store, rank, 2);
  });
}

TEST(TcpStore, ATimeOutNamesTheRanksThatAreMissing) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  on_each_rank(2, [&](std::uint32_t rank) {
    const auto store = value_of(open(store_address, placement_of(rank, 4)));
    ASSERT_TRUE(store->set(std::to_string(rank), {}));
    ASSERT_TRUE(store->get(std::to_string(1 - rank), soon_enough()));
    const auto missing = store->get("never", Deadline::after(milliseconds(100)));
    EXPECT_THAT(missing, AllOf(fails_as(Code::timed_out), blames(2U)));
    EXPECT_THAT(std::string(missing.status().message()),
                testing::MatchesRegex("ranks 2, 3 did not come within .*; 0, 1 are here"));
    EXPECT_TRUE(store->get(std::to_string(rank), soon_enough()))
        << "the store still works after a time-out";
    finish(*store, rank, 2);
  });
}

TEST(TcpStore, ThoseWhoWaitWhenRankZeroGivesUpLearnWhoWasMissing) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  on_each_rank(2, [&](std::uint32_t rank) {
    auto store = value_of(open(store_address, placement_of(rank, 3)));
    if (rank == 0) {
      ASSERT_TRUE(store->get("here", soon_enough()));
      store.reset();
      return;
    }
    ASSERT_TRUE(store->set("here", {}));
    const auto waiting = store->get("never", soon_enough());
    EXPECT_THAT(waiting, AllOf(fails_as(Code::timed_out), blames(2U)));
  });
}

TEST(TcpStore, ADeathIsToldToAllWhoWaitOrAsk) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  const auto placement = placement_of(2, 3);
  std::latch both_heard(2);
  on_each_rank(3, [&](std::uint32_t rank) {
    if (rank == 2) {
      EXPECT_TRUE(shake_hands(
          store_address, Handshake(Handshake::Side::caller, store_key(placement), {2, 3, {}})));
      return;
    }
    const auto store = open(store_address, placement_of(rank, 3));
    for (int i = 0; i < 2; ++i) {
      // A rank that connects after the death is refused.
      const Status status = store ? (*store)->get("never", soon_enough()).status() : store.status();
      EXPECT_THAT(status, AllOf(fails_as(Code::peer_lost), blames(2U)));
    }
    // Rank 0 serves the store until rank 1 has learned of the death, too.
    both_heard.arrive_and_wait();
  });
}

TEST(TcpStore, WhoGivesUpIsHeardByAllAndByThoseWhoComeLater) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  std::barrier three(3);
  std::latch failed(3);
  on_each_rank(4, [&](std::uint32_t rank) {
    if (rank == 3) {
      failed.wait();
      EXPECT_EQ(open(store_address, placement_of(3, 4)).status().message(), "no room");
      return;
    }
    const auto store = value_of(open(store_address, placement_of(rank, 4)));
    auto& start = dynamic_cast<runtime::StartStore&>(*store);
    EXPECT_TRUE(start.verdict());
    three.arrive_and_wait();
    const Status heard = rank == 1 ? store->get("never", soon_enough()).status()
                                   : start.abandon(failure(Code::exhausted, "no room", rank));
    EXPECT_EQ(heard.code(), Code::exhausted) << heard.to_string();
    EXPECT_EQ(heard.message(), "no room");
    EXPECT_EQ(start.verdict().peer(), heard.peer());
    EXPECT_EQ(store->set("later", {}).peer(), heard.peer());
    failed.count_down();
    // Rank 0 destroys its store at once. The destructor waits until the last rank has been
    // answered.
  });
}

TEST(TcpStore, AnotherVersionIsToldToAll) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  const auto placement = placement_of(1, 2);
  on_each_rank(2, [&](std::uint32_t rank) {
    if (rank == 0) {
      const auto store = value_of(open(store_address, placement_of(0, 2)));
      EXPECT_THAT(store->get("never", soon_enough()),
                  fails_as(Code::mismatch, "9.9.9", XYLEM_VERSION));
      return;
    }
    const Status status = shake_hands(
        store_address,
        Handshake(Handshake::Side::caller, store_key(placement), {1, 2, {}}, {1, "9.9.9"}));
    EXPECT_THAT(status, fails_as(Code::mismatch, "9.9.9", XYLEM_VERSION));
  });
}

TEST(TcpStore, AnotherSecretIsRefusedAtOnce) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  const auto server = value_of(open(store_address, placement_of(0, 2)));
  auto placement = placement_of(1, 2);
  placement.secret = "guess";
  EXPECT_THAT(open(store_address, placement),
              fails_as(Code::mismatch, "XYLEM_SECRET", "127.0.0.1"));
}

/// Serves a port in place of rank 0. It answers like rank 0, but cannot make a valid proof.
class Impostor {
 public:
  /// The bytes that the impostor sends in place of a proof.
  enum class Says { guess, zeros, callers };

  Impostor(std::uint16_t port, Says says, runtime::Placement placement)
      : says_(says), placement_(std::move(placement)) {
    auto fd = value_of(runtime::listen_on(SocketAddress::parse("127.0.0.1", port).value()));
    thread_ = std::thread([this, fd = std::move(fd)] { serve(fd.get()); });
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  ~Impostor() {
    stop_ = true;
    thread_.join();
  }

  /// The number of callers that got the impostor's whole answer.
  int answered() const { return answered_; }
  /// The number of callers that sent more bytes after this answer.
  int believed() const { return believed_; }

 private:
  void serve(int listener) {
    while (!stop_) {
      if (!runtime::wait_for(listener, POLLIN, Deadline::after(milliseconds(20)))) continue;
      const auto fd = runtime::accept_from(listener);
      if (fd && *fd) pose(fd->get());
    }
  }
  void pose(int fd) {
    const Key guess("guess", "xylem store", bytes_of(placement_.job));
    const runtime::Member self{0, placement_.size, runtime::HostIdentity::of_this_process()};
    Handshake handshake(Handshake::Side::callee, guess, self);
    ByteVector preamble(handshake.wants()), out;
    if (!runtime::receive_all(fd, preamble, soon_enough())) return;
    if (!handshake.receive(preamble, out)) return;
    if (!runtime::send_all(fd, out, soon_enough())) return;
    ByteVector proof(handshake.wants());
    if (!runtime::receive_all(fd, proof, soon_enough())) return;
    if (!runtime::send_all(fd, answer_to(proof, preamble, out, self), soon_enough())) return;
    ++answered_;
    ByteVector more(1);
    if (runtime::receive_all(fd, more, soon_enough())) ++believed_;
  }
  ByteVector answer_to(const ByteVector& proof,
                       const ByteVector& theirs,
                       const ByteVector& ours,
                       const runtime::Member& self) const {
    if (says_ == Says::callers) return proof;
    if (says_ == Says::zeros) return ByteVector(proof.size());
    ByteVector answer, statement;
    runtime::WireWriter facts(answer);
    facts.number(self.rank).number(self.size);
    self.host.write(facts);
    runtime::WireWriter(statement).text("callee").raw(theirs).raw(ours).raw(answer);
    const Key guess("guess", "xylem store", bytes_of(placement_.job));
    facts.raw(guess.prove(statement));
    return answer;
  }

  const Says says_;
  const runtime::Placement placement_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> answered_ = 0, believed_ = 0;
  std::thread thread_;
};

TEST(TcpStore, WhoCannotProveTheSecretServesNobody) {
  auto placement = placement_of(1, 2);
  placement.secret = "only-the-ranks-know-this";
  for (const auto says : {Impostor::Says::guess, Impostor::Says::zeros, Impostor::Says::callers}) {
    SCOPED_TRACE(static_cast<int>(says));
    const std::uint16_t port = free_port();
    const Impostor impostor(port, says, placement);
    EXPECT_THAT(open(at("127.0.0.1", port), placement),
                fails_as(Code::mismatch, "is not rank 0 of this job", "XYLEM_SECRET",
                         "does not know this job's secret"));
    EXPECT_GE(impostor.answered(), 1);
    EXPECT_EQ(impostor.believed(), 0);
  }
}

/// Sends text to a peer, which may have closed the connection.
void chat(const UniqueFd& fd, const std::string& text) {
  static_cast<void>(runtime::send_all(fd.get(), bytes_of(text), soon_enough()).is_ok());
}

TEST(TcpStore, ACrowdOfSilentStrangersKeepsNobodyOut) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  const std::string path = testing::TempDir() + "xylem-strangers-" + std::to_string(::getpid());
  const auto began = Clock::now();
  {
    const auto log =
        value_of(Logger::open({.level = LogLevel::warn, .file = path}, {"host", 0, ""}));
    const auto server =
        value_of(TcpStore::open(store_address, placement_of(0, 2), log, soon_enough()));
    const auto address = SocketAddress::parse("127.0.0.1", store_address.ports[0]).value();
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 300; ++i) {
      strangers.push_back(value_of(runtime::connect_to(address, soon_enough())));
      if (i % 2 == 0) chat(strangers.back(), std::string(100, 'x'));
    }
    const auto member = open(store_address, placement_of(1, 2), Deadline::after(seconds(2)));
    EXPECT_TRUE(member) << member.status().to_string();
  }
  std::ifstream log(path);
  std::ptrdiff_t lines = 0;
  for (std::string line; std::getline(log, line);) ++lines;
  EXPECT_GE(lines, 1);
  EXPECT_LE(lines, 2 + std::chrono::duration_cast<seconds>(Clock::now() - began).count());
  std::filesystem::remove(path);
}

TEST(TcpStore, ASecondProcessOfOneRankIsRefused) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  const auto server = open(store_address, placement_of(0, 2));
  const auto first = open(store_address, placement_of(1, 2));
  ASSERT_TRUE(server && first);
  EXPECT_THAT(open(store_address, placement_of(1, 2), Deadline::after(milliseconds(300))),
              fails_as(Code::busy, "another process has come as rank 1"));
}

TEST(TcpStore, StartsAgainOnTheSamePort) {
  const TcpStoreAddress store_address = at("127.0.0.1", free_port());
  for (const char* const job : {"first", "second", "third"}) start(store_address, 2, job);
}

TEST(TcpStore, AMissingServerIsRankZeroMissing) {
  const auto store =
      open(at("127.0.0.1", free_port()), placement_of(1, 2), Deadline::after(milliseconds(200)));
  EXPECT_THAT(store, fails_as(Code::timed_out, "rank 0 did not answer", "127.0.0.1"));
  EXPECT_EQ(store.status().peer(), 0U);
}

TEST(TcpStore, ATakenPortIsNamed) {
  const auto taken = runtime::listen_on(SocketAddress::parse("127.0.0.1", 0).value());
  const std::uint16_t port = SocketAddress::of_socket(taken->get())->port();
  EXPECT_THAT(open(at("127.0.0.1", port), placement_of(0, 2)),
              fails_as(Code::busy, std::to_string(port), "XYLEM_RENDEZVOUS"));
}

TEST(TcpStore, DerivedPortsSkipWhatOthersServe) {
  // Another program uses the first candidate port, and sends text to each caller.
  const auto taken = runtime::listen_on(SocketAddress::parse("127.0.0.1", 0).value());
  const TcpStoreAddress store_address{
      "127.0.0.1", {SocketAddress::of_socket(taken->get())->port(), free_port()}, false};
  std::atomic<bool> stop = false;
  std::thread chatterbox([&] {
    while (!stop) {
      const auto fd = runtime::accept_from(taken->get());
      if (fd && *fd) chat(*fd, std::string(200, 'h'));
      std::this_thread::yield();
    }
  });
  start(store_address, 3, "job");
  stop = true;
  chatterbox.join();
}

TEST(TcpStore, TwoJobsWithOneFirstCandidateBothMeet) {
  const std::vector<std::uint16_t> ports = {free_port(), free_port(), free_port()};
  std::vector<std::thread> jobs;
  for (const char* const job : {"red", "blue"}) {
    jobs.emplace_back([&ports, job] { start({"127.0.0.1", ports, false}, 2, job); });
  }
  for (std::thread& job : jobs) job.join();
}

/// While an object of this class exists, threads cannot be created: their stacks would exceed any
/// address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_init(&attributes_);
    pthread_getattr_default_np(&attributes_);
    pthread_attr_getstacksize(&attributes_, &before_);
    set(std::size_t{1} << 52);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    set(before_);
    pthread_attr_destroy(&attributes_);
  }

 private:
  void set(std::size_t stack) {
    pthread_attr_setstacksize(&attributes_, stack);
    EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
  }
  pthread_attr_t attributes_{};
  std::size_t before_ = 0;
};

TEST(TcpStore, WithoutRoomForAThreadTheStartIsExhausted) {
  const auto expect_exhausted = [](const TcpStoreAddress& store_address, const char* what) {
    const NoThreads full;
    EXPECT_THAT(open(store_address, placement_of(0, 2)),
                fails_as(Code::exhausted, what, "ulimit -u"));
  };
  expect_exhausted(at("127.0.0.1", free_port()), "serve");
  expect_exhausted(at("localhost", free_port()), "look up \"localhost\"");
  EXPECT_TRUE(open(at("localhost", free_port()), placement_of(0, 1)))
      << "the store starts when threads can be made again";
}

TEST(TcpStore, RefusesWhatItsRulesExclude) {
  const auto store = value_of(open(at("127.0.0.1", free_port()), placement_of(0, 2)));
  const std::string long_key(runtime::kLongestKey + 1, 'k');
  EXPECT_EQ(store->set("", {}).code(), Code::invalid_argument);
  EXPECT_EQ(store->set(long_key, {}).code(), Code::invalid_argument);
  const ByteVector large(runtime::kLargestValue + 1);
  EXPECT_EQ(store->set("big", large).code(), Code::invalid_argument);
  EXPECT_TRUE(store->set("key", bytes_of("1")));
  EXPECT_THAT(store->set("key", bytes_of("2")), fails_with("set before"));
  EXPECT_EQ(text_of(store->get("key", soon_enough()).value()), "1");
}

}  // namespace
}  // namespace xylem::test
