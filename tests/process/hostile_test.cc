// SPDX-License-Identifier: Apache-2.0
//
// A job on two hosts, and a process of another user on one of these hosts. The process disturbs the
// job while it starts, while its ranks connect, and while it computes.
#include "process/hosts.h"
#include "support/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

const std::string kRank = std::string(XYLEM_TEST_BIN) + "/hostile_rank";
/// The network namespaces belong to the test, so every port in them is free.
constexpr std::uint16_t kRendezvous = 29'400;
/// Rank 0 is on host 0. Ranks 1 and 2 are on host 1 and share memory.
constexpr std::size_t kRanks = 3;

Deadline soon() { return Deadline::after(seconds(40)); }

std::size_t host_of(std::size_t rank) { return rank == 0 ? 0 : 1; }

/// Starts the job, and ends it by creating a file.
class HostileProcess : public testing::Test {
 protected:
  void SetUp() override {
    hosts = std::make_unique<Hosts>();
    if (!hosts->ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  }

  void start_rank(std::size_t rank) {
    began.push_back(Clock::now());
    Command::Variables variables = {
        {"XYLEM_RANK", std::to_string(rank)},
        {"XYLEM_SIZE", std::to_string(kRanks)},
        {"XYLEM_RENDEZVOUS", "tcp://" + Hosts::address(0) + ":" + std::to_string(kRendezvous)},
        {"XYLEM_START_TIMEOUT", "30s"},
        {"XYLEM_TUNING", "off"}};
    variables.insert(variables.end(), settings.begin(), settings.end());
    ranks.push_back(hosts->run(host_of(rank), {kRank, end_file()}, variables));
  }
  void start_ranks() {
    while (ranks.size() < kRanks) start_rank(ranks.size());
  }
  bool wait_for_first_call() {
    return std::ranges::all_of(
        ranks, [](const auto& rank) { return rank->wait_for_output("first\n", soon()); });
  }
  /// Waits until all ranks have made further calls.
  bool goes_on() {
    return std::ranges::all_of(
        ranks, [](const auto& rank) { return rank->wait_for_new_lines(2, soon()); });
  }
  /// The TCP sockets of a host. Any process on the host can list them.
  std::vector<SocketEntry> sockets_of(std::size_t host) const {
    return sockets_beside(std::to_string(ranks[host == 0 ? 0 : 1]->pid()));
  }
  bool anybody_listens() const {
    const auto on_host = [&](std::size_t host) {
      return std::ranges::any_of(sockets_of(host), &SocketEntry::listens);
    };
    return on_host(0) || on_host(1);
  }
  /// Polls the sockets of both hosts until none of them listens.
  bool is_closed_within(milliseconds limit) {
    const Deadline deadline = Deadline::after(limit);
    while (anybody_listens()) {
      if (deadline.passed()) return false;
      // The rank never prints "port". The call reads the rank's output during the wait.
      static_cast<void>(ranks[0]->wait_for_output("port", Deadline::after(milliseconds(5))));
    }
    return true;
  }
  /// Ends the job, and expects that all ranks got correct sums. Returns the log of each rank. It
  /// may contain at most `sources` lines for each second.
  std::vector<std::string> expect_good_end(int sources) {
    std::vector<std::string> logs;
    std::ofstream(end_file()) << "now";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Finished finished = ranks[rank]->wait(soon());
      EXPECT_EQ(finished.exit_status, 0) << rank << ": " << finished.out << finished.err;
      const auto took = std::chrono::duration_cast<seconds>(Clock::now() - began[rank]);
      const auto lines = std::ranges::count(finished.err, '\n');
      EXPECT_LE(lines, sources * (took.count() + 1)) << rank << ": " << finished.err;
      EXPECT_THAT(finished.err, Not(HasSubstr("lost"))) << rank;
      logs.push_back(finished.err);
    }
    return logs;
  }
  std::string end_file() const { return directory.path() + "/end"; }

  const TemporaryDirectory directory;
  /// Variables of all ranks, in addition to those with which ranks are started.
  std::map<std::string, std::string> settings = {{"XYLEM_SECRET", "only-the-ranks-know-this"}};
  std::unique_ptr<Hosts> hosts;
  std::vector<std::unique_ptr<Command>> ranks;
  std::vector<Clock::time_point> began;
};

// --- Actions of strangers -----------------------------------------------------------

void send_garbage(int fd, std::mt19937& random) {
  std::string garbage(random() % 300, '\0');
  for (char& byte : garbage) byte = static_cast<char>(random());
  // One third of the garbage begins with the magic number of the protocol.
  if (random() % 3 == 0) garbage.insert(0, "\x8cXYLEM\r\n");
  static_cast<void>(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL));
}

struct Target {
  std::size_t host;
  std::uint16_t port;
};

/// Connects to a port. If that succeeds, reports the port, sends garbage and keeps the connection
/// open.
void try_port(const Target& target,
              const Stranger::Line& line,
              std::mt19937& random,
              std::vector<UniqueFd>& kept) {
  UniqueFd fd = call(Hosts::address(target.host), target.port);
  if (!fd || !is_answered(fd.get())) return;
  line.say("answered " + std::to_string(target.host) + ":" + std::to_string(target.port) + "\n");
  send_garbage(fd.get(), random);
  kept.push_back(std::move(fd));
}

/// For two seconds, connects repeatedly to the ports that the ranks use. Between these attempts,
/// tries as many other ports of both hosts as time permits.
void flood_ports(const Stranger::Line& line, const std::vector<Target>& used) {
  constexpr unsigned kPorts = 65'536;
  std::mt19937 random(3);
  std::vector<UniqueFd> kept;
  unsigned long calls = 0;
  // Linux assigns ports from the upper half of the range, so the scan begins there.
  unsigned scanned = 0;
  const Deadline deadline = Deadline::after(seconds(2));
  while (!deadline.passed()) {
    for (const Target& target : used) try_port(target, line, random, kept);
    calls += used.size();
    for (int i = 0; i < 100 && scanned < Hosts::kCount * kPorts; ++i, ++scanned) {
      const auto port = static_cast<std::uint16_t>(kPorts / 2 + scanned / Hosts::kCount);
      if (port != 0) try_port({scanned % Hosts::kCount, port}, line, random, kept);
    }
  }
  line.say("called " + std::to_string(calls) + " times, and " + std::to_string(scanned) +
           " ports\ndone\n");
}

/// Opens 2000 idle connections to the rendezvous, and 500 that send garbage. Then, until it is
/// stopped, opens more connections of both kinds to every listening port on its host.
void crowd_the_start(const Stranger::Line& line) {
  constexpr std::size_t kIdle = 2000;
  constexpr std::size_t kLoud = 500;
  std::mt19937 random(4);
  std::deque<UniqueFd> kept;
  const auto keep = [&](UniqueFd fd) {
    if (fd) kept.push_back(std::move(fd));
    if (kept.size() > kIdle) kept.pop_front();
  };
  std::size_t answered = 0;
  for (std::size_t i = 0; i < kIdle + kLoud; ++i) {
    UniqueFd fd = call(Hosts::address(0), kRendezvous);
    if (!fd || !is_answered(fd.get())) continue;
    ++answered;
    if (i >= kIdle) send_garbage(fd.get(), random);
    else keep(std::move(fd));
  }
  line.say("crowd of " + std::to_string(answered) + "\n");
  std::set<std::uint16_t> disturbed;
  while (!line.is_over()) {
    keep(call(Hosts::address(0), kRendezvous));
    for (const SocketEntry& socket : sockets_beside("self")) {
      if (!socket.listens) continue;
      disturbed.insert(socket.port);
      for (int i = 0; i < 20; ++i) {
        UniqueFd fd = call(Hosts::address(1), socket.port);
        if (!fd || !is_answered(fd.get())) break;
        if (i % 2 == 0) send_garbage(fd.get(), random);
        keep(std::move(fd));
      }
    }
  }
  line.say("disturbed " + std::to_string(disturbed.size()) + " ports of its host\ndone\n");
}

/// The datagram that ranks of one host send to each other, as in transport/src/shm/peer_socket.h.
struct PeerMessage {
  enum Kind : std::uint32_t { hello, accept, share, forget };
  Kind kind = hello;
  std::uint32_t channel = 0, credit = 0, allocation = 0;
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, 2> from{};
  std::uint64_t nonce_at = 0;
};

/// Sends datagrams to the sockets of the ranks on its host. Answers arrive at a socket of the
/// object.
class Intruder {
 public:
  explicit Intruder(std::uint64_t number)
      : nonce_{0x6b6e6f636b, number},
        socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        memory_(::memfd_create("intruder", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "xylem-%016llx%016llx",
                  static_cast<unsigned long long>(nonce_[0]),
                  static_cast<unsigned long long>(nonce_[1]));
    const auto [address, bytes] = address_of(name.data());
    is_open_ = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
               ::ftruncate(memory_.get(), 1 << 20) == 0 &&
               ::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  }

  bool is_open() const { return is_open_; }
  /// Sends a datagram to the socket named `to`. Returns true if the kernel delivered the datagram.
  bool send(const std::string& to, PeerMessage::Kind kind) const {
    PeerMessage content{.kind = kind, .bytes = 1 << 20, .from = nonce_};
    iovec data{&content, sizeof content};
    const auto [address, bytes] = address_of(to);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
    msghdr message{};
    message.msg_name = const_cast<sockaddr_un*>(&address);
    message.msg_namelen = bytes;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    const std::array<int, 2> shared{memory_.get(), memory_.get()};
    const std::size_t count = kind == PeerMessage::forget ? 0 : kind == PeerMessage::share ? 1 : 2;
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(count * sizeof(int));
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(count * sizeof(int));
      std::memcpy(CMSG_DATA(header), shared.data(), count * sizeof(int));
    }
    return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0;
  }
  bool is_answered() const {
    std::byte any{};
    return ::recv(socket_.get(), &any, sizeof any, 0) >= 0;
  }
  /// The sockets of the ranks on this host.
  std::set<std::string> sockets() const {
    std::set<std::string> found;
    // A thread of this process may be in another network namespace, so this reads
    // /proc/thread-self.
    for (const std::string& name : names_beside("thread-self")) {
      if (name.starts_with("xylem-") && !name.starts_with("xylem-0000006b6e6f636b"))
        found.insert(name);
    }
    return found;
  }

 private:
  static std::pair<sockaddr_un, socklen_t> address_of(std::string_view name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }

  std::array<std::uint64_t, 2> nonce_;
  UniqueFd socket_, memory_;
  bool is_open_ = false;
};

/// Sends all kinds of datagrams to the sockets of the ranks on its host, until it is stopped.
void write_to_sockets(const Stranger::Line& line) {
  const Intruder intruder(1);
  const auto sockets = intruder.sockets();
  line.say("sees " + std::to_string(intruder.is_open() ? sockets.size() : 0) + " sockets\n");
  unsigned long taken = 0;
  bool has_said = false;
  while (!line.is_over()) {
    for (const std::string& socket : sockets) {
      for (const auto kind :
           {PeerMessage::hello, PeerMessage::accept, PeerMessage::share, PeerMessage::forget}) {
        taken += intruder.send(socket, kind) ? 1 : 0;
      }
    }
    if (taken >= 100 && !has_said) line.say("has written\n");
    has_said = taken >= 100;
  }
  line.say(intruder.is_answered() ? "answered\ndone\n" : "done\n");
}

// --- Tests --------------------------------------------------------------------------

TEST_F(HostileProcess, AJobBetweenHostsListensNowhereAndGoesOnUnderAFlood) {
  start_ranks();
  ASSERT_TRUE(wait_for_first_call()) << ranks[0]->said() << ranks[1]->said() << ranks[2]->said();
  EXPECT_TRUE(is_closed_within(seconds(1)));

  std::vector<Target> used = {{0, kRendezvous}};
  for (std::size_t host = 0; host < Hosts::kCount; ++host) {
    for (const SocketEntry& socket : sockets_of(host)) used.push_back({host, socket.port});
  }
  ASSERT_GT(used.size(), 4U) << "the ranks are connected";
  Stranger stranger(*hosts, 1, [&](const Stranger::Line& line) { flood_ports(line, used); });
  EXPECT_TRUE(goes_on());
  ASSERT_TRUE(stranger.wait_for("done", soon()));
  const std::string said = stranger.stop(soon());
  EXPECT_THAT(said, Not(HasSubstr("answered")));
  std::printf("%s", said.c_str());
  EXPECT_TRUE(goes_on());
  EXPECT_FALSE(anybody_listens());
  EXPECT_THAT(expect_good_end(1), Each(Not(HasSubstr("XYLEM_SECRET")))) << "it is set";
}

TEST_F(HostileProcess, AnotherUserAtTheSocketsOfSharedMemoryIsNotHeard) {
  start_ranks();
  ASSERT_TRUE(wait_for_first_call()) << ranks[0]->said() << ranks[1]->said() << ranks[2]->said();
  Stranger stranger(*hosts, 1, write_to_sockets);
  ASSERT_TRUE(stranger.wait_for("has written", soon()));
  EXPECT_TRUE(goes_on());
  const std::string said = stranger.stop(soon());
  EXPECT_THAT(said, HasSubstr("sees 2 sockets"));
  EXPECT_THAT(said, HasSubstr("done"));
  EXPECT_THAT(said, Not(HasSubstr("answered")));

  // A process of the same user as the ranks can send messages to them, but the ranks refuse the
  // messages.
  hosts->within(1, [] {
    const Intruder intruder(2);
    const Deadline deadline = soon();
    for (const std::string& socket : intruder.sockets()) {
      while (!intruder.send(socket, PeerMessage::hello)) ASSERT_FALSE(deadline.passed());
    }
  });
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_TRUE(ranks[rank]->wait_for_error("message of a peer is refused", soon())) << rank;
  }
  EXPECT_TRUE(goes_on());
  const auto logs = expect_good_end(1);
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_EQ(std::ranges::count(logs[rank], '\n'), 1) << logs[rank];
  }
}

TEST_F(HostileProcess, RankZeroWarnsWhereHostsMeetWithoutASecret) {
  settings.erase("XYLEM_SECRET");
  start_ranks();
  ASSERT_TRUE(wait_for_first_call()) << ranks[0]->said() << ranks[1]->said() << ranks[2]->said();
  const auto logs = expect_good_end(1);
  EXPECT_THAT(logs[0], HasSubstr("XYLEM_SECRET is not set"));
  EXPECT_THAT(logs[1], Not(HasSubstr("XYLEM_SECRET")));
  EXPECT_THAT(logs[2], Not(HasSubstr("XYLEM_SECRET")));
}

TEST_F(HostileProcess, EachRankWarnsOfThePortThatUcxServes) {
  settings["XYLEM_TRANSPORT"] = "ucx-tcp";
  ASSERT_TRUE(hosts->wait_for_wire(soon()));
  start_ranks();
  ASSERT_TRUE(wait_for_first_call()) << ranks[0]->said() << ranks[1]->said() << ranks[2]->said();
  EXPECT_TRUE(anybody_listens());
  EXPECT_THAT(expect_good_end(1), Each(HasSubstr("UCX listens on wire0")));
}

TEST_F(HostileProcess, ACrowdAtThePortsOfAStartKeepsNobodyOut) {
  start_rank(0);
  const Deadline deadline = soon();
  const auto listens = [&] {
    return std::ranges::any_of(
        sockets_beside(std::to_string(ranks[0]->pid())),
        [](const SocketEntry& socket) { return socket.listens && socket.port == kRendezvous; });
  };
  // The rank prints nothing yet. The call reads the rank's output during the wait.
  while (!listens() && !deadline.passed() && ranks[0]->said().empty())
    static_cast<void>(ranks[0]->wait_for_output("first", Deadline::after(milliseconds(5))));
  ASSERT_TRUE(listens()) << ranks[0]->said();
  Stranger stranger(*hosts, 1, crowd_the_start);
  ASSERT_TRUE(stranger.wait_for("crowd of", soon()));

  const auto crowded = Clock::now();
  start_ranks();
  ASSERT_TRUE(wait_for_first_call()) << ranks[0]->said() << ranks[1]->said() << ranks[2]->said();
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - crowded);
  std::printf("the start and the first call took %ld ms\n", static_cast<long>(took.count()));
  EXPECT_TRUE(is_closed_within(seconds(1)));
  std::printf("%s", stranger.stop(soon()).c_str());
  EXPECT_TRUE(goes_on());
  // The rendezvous, the control plane and the connections for payload may each log one line a
  // second.
  expect_good_end(3);
}

}  // namespace
}  // namespace xylem::test
