// SPDX-License-Identifier: Apache-2.0
//
// A job between two hosts, and a process of another user on one of them that disturbs it: while the
// job starts, while its ranks meet, and while it computes.
#include "process/hosts.h"
#include "support/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

const std::string kRank = std::string(XYLEM_TEST_BIN) + "/hostile_rank";
/// The hosts are the test's own, and so are all their ports.
constexpr std::uint16_t kRendezvous = 29'400;
/// Rank 0 is on host 0, the others are on host 1: two of them share memory.
constexpr std::size_t kRanks = 3;

Deadline soon() { return Deadline::after(seconds(40)); }

std::size_t host_of(std::size_t rank) { return rank == 0 ? 0 : 1; }

bool has_program(const std::string& name) {
  return run_command({"sh", "-c", "command -v " + name}).exit_status == 0;
}

/// The job, with a file that ends it.
class HostileProcess : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || !has_program("ip"))
      GTEST_SKIP() << "network namespaces and other users need root and ip";
    hosts = std::make_unique<Hosts>();
    if (!hosts->ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  }

  void start_rank(std::size_t rank) {
    began.push_back(Clock::now());
    ranks.push_back(hosts->run(
        host_of(rank), {kRank, end_file()},
        {{"XYLEM_RANK", std::to_string(rank)},
         {"XYLEM_SIZE", std::to_string(kRanks)},
         {"XYLEM_RENDEZVOUS", "tcp://" + Hosts::address(0) + ":" + std::to_string(kRendezvous)},
         {"XYLEM_SECRET", "only-the-ranks-know-this"},
         {"XYLEM_START_TIMEOUT", "30s"},
         {"XYLEM_TUNING", "off"}}));
  }
  void start_ranks() {
    while (ranks.size() < kRanks) start_rank(ranks.size());
  }
  bool wait_for_first_call() {
    return std::ranges::all_of(
        ranks, [](const auto& rank) { return rank->wait_for_output("first\n", soon()); });
  }
  /// All ranks have made calls from now on.
  bool goes_on() {
    return std::ranges::all_of(ranks, [](const auto& rank) {
      const auto lines = std::ranges::count(rank->said(), '\n');
      return rank->wait_for_lines(lines + 2, soon());
    });
  }
  /// Sockets of a host, as its ranks' kernel shows them.
  std::vector<SocketEntry> sockets_of(std::size_t host) const {
    return sockets_beside(std::to_string(ranks[host == 0 ? 0 : 1]->pid()));
  }
  bool anybody_listens() const {
    const auto on_host = [&](std::size_t host) {
      return std::ranges::any_of(sockets_of(host), &SocketEntry::listens);
    };
    return on_host(0) || on_host(1);
  }
  /// Looks at the hosts' sockets until nobody listens.
  bool is_closed_within(milliseconds limit) {
    const Deadline deadline = Deadline::after(limit);
    while (anybody_listens()) {
      if (deadline.passed()) return false;
      // It says no such thing: this reads what it says meanwhile.
      static_cast<void>(ranks[0]->wait_for_output("port", Deadline::after(milliseconds(5))));
    }
    return true;
  }
  /// Ends the job, whose sums must have been right. At most `sources` lines of log a second of each
  /// rank.
  void expect_good_end(int sources) {
    std::ofstream(end_file()) << "now";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Finished finished = ranks[rank]->wait(soon());
      EXPECT_EQ(finished.exit_status, 0) << rank << ": " << finished.out << finished.err;
      const auto took = std::chrono::duration_cast<seconds>(Clock::now() - began[rank]);
      const auto lines = std::ranges::count(finished.err, '\n');
      EXPECT_LE(lines, sources * (took.count() + 1)) << rank << ": " << finished.err;
      EXPECT_THAT(finished.err, Not(HasSubstr("lost"))) << rank;
    }
  }
  std::string end_file() const { return directory.path() + "/end"; }

  const PrivateDirectory directory;
  std::unique_ptr<Hosts> hosts;
  std::vector<std::unique_ptr<Command>> ranks;
  std::vector<Clock::time_point> began;
};

// --- What strangers do --------------------------------------------------------------

void send_garbage(int fd, std::mt19937& random) {
  std::string garbage(random() % 300, '\0');
  for (char& byte : garbage) byte = static_cast<char>(random());
  // Some know the magic.
  if (random() % 3 == 0) garbage.insert(0, "\x8cXYLEM\r\n");
  static_cast<void>(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL));
}

struct Target {
  std::size_t host;
  std::uint16_t port;
};

/// Calls a port, and says so if it answers. Then it gets garbage, and stays connected.
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

/// For two seconds: calls the ports that the ranks use, over and over, and between that all others
/// of both hosts, as far as the time goes.
void flood_ports(const Stranger::Line& line, const std::vector<Target>& used) {
  constexpr unsigned kPorts = 65'536;
  std::mt19937 random(3);
  std::vector<UniqueFd> kept;
  unsigned long calls = 0;
  // Linux gives out the upper ones, so these are looked at first.
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

/// 2000 connections to the rendezvous that say nothing and are kept, and 500 that say something;
/// then, until it is told to end, more of both kinds at each port of its host that it sees open.
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
  expect_good_end(1);
}

TEST_F(HostileProcess, ACrowdAtThePortsOfAStartKeepsNobodyOut) {
  start_rank(0);
  const Deadline deadline = soon();
  const auto listens = [&] {
    return std::ranges::any_of(
        sockets_beside(std::to_string(ranks[0]->pid())),
        [](const SocketEntry& socket) { return socket.listens && socket.port == kRendezvous; });
  };
  // Reads what it says meanwhile, which is nothing.
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
  // The rendezvous, the control plane and the meetings each have a line of their own.
  expect_good_end(3);
}

}  // namespace
}  // namespace xylem::test
