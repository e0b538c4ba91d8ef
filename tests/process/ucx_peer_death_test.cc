// SPDX-License-Identifier: Apache-2.0
//
// The behavior of a UCX transport when its peer's process is killed while messages are under way.
// The peer is started by executing this program with --peer, since a process that uses UCX must not
// fork.
#include "unit/transport_fixture.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/ucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::transport::testing {
namespace {

constexpr int kPeerSocket = 3;
constexpr std::chrono::seconds kDeathSeenWithin{2};
/// The size of a message that takes so long that the peer is killed while the message is under way.
constexpr std::uint64_t kLarge = 64 << 20;

constexpr Tag kPing = 1, kToPeer = 2, kFromPeer = 3, kNeverReceived = 4, kNeverSent = 5;

bool write_all(int fd, const void* data, std::size_t bytes) {
  return ::send(fd, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

// An address is far smaller than a socket buffer, so one write sends it.
bool give_address(int fd, std::span<const std::byte> address) {
  const std::uint64_t bytes = address.size();
  return write_all(fd, &bytes, sizeof bytes) && write_all(fd, address.data(), bytes);
}

std::vector<std::byte> take_address(int fd) {
  std::uint64_t bytes = 0;
  if (::recv(fd, &bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes || bytes > 1 << 20) return {};
  std::vector<std::byte> address(bytes);
  if (::recv(fd, address.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) return {};
  return address;
}

Result<std::unique_ptr<Transport>> make() {
  UcxOptions options;
  options.reach = UcxReach::tcp;
  return make_ucx(options, Logger());
}

// The peer answers pings, and sends and receives one large message each, until it is killed.
int run_peer() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto transport = make();
  if (!transport || !give_address(kPeerSocket, (*transport)->address())) return 1;
  auto survivor = (*transport)->connect(take_address(kPeerSocket));
  if (!survivor) return 1;

  const std::vector<std::byte> source(kLarge, std::byte{1});
  std::vector<std::byte> target(kLarge);
  Tracked large[2];
  send(**transport, *survivor, kFromPeer, source.data(), kLarge, large[0]);
  recv(**transport, kToPeer, target.data(), kLarge, large[1]);
  std::uint64_t word = 0;
  const auto deadline = Deadline::after(std::chrono::seconds(60));
  while (!deadline.passed()) {
    Tracked ping;
    Tracked pong;
    recv(**transport, kPing, &word, sizeof word, ping);
    while (!ping.ended() && !deadline.passed()) (*transport)->progress();
    send(**transport, *survivor, kPing, &word, sizeof word, pong);
    while (!pong.ended() && !deadline.passed()) (*transport)->progress();
  }
  return 2;
}

class Peer {
 public:
  Peer() {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return;
    socket_.reset(sockets[0]);
    const UniqueFd theirs(sockets[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), kPeerSocket);
    std::string program = "/proc/self/exe";
    std::string role = "--peer";
    char* arguments[] = {program.data(), role.data(), nullptr};
    if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ) != 0)
      pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Peer() { kill(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int socket() const { return socket_.get(); }
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0 || dead_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    dead_ = true;
  }

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
  bool dead_ = false;
};

class UcxPeerDeath : public ::testing::Test {
 protected:
  void SetUp() override {
    peer = std::make_unique<Peer>();
    ASSERT_GT(peer->pid(), 0);
    auto made = make();
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    transport = std::move(*made);
    auto endpoint = transport->connect(take_address(peer->socket()));
    ASSERT_TRUE(endpoint.is_ok()) << endpoint.status().to_string();
    to_peer = *endpoint;
    ASSERT_TRUE(give_address(peer->socket(), transport->address()));
  }

  bool progress_until(auto condition, Clock::duration patience = kPatience) {
    return drive({transport.get()}, condition, patience);
  }

  // Pings the peer `rounds` times, and waits for each answer.
  void ping(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      std::uint64_t word = 0;
      Tracked sent;
      Tracked received;
      recv(*transport, kPing, &word, sizeof word, received);
      send(*transport, to_peer, kPing, &word, sizeof word, sent);
      ASSERT_TRUE(progress_until([&] { return sent.ended() && received.ended(); }));
      ASSERT_EQ(received.code, Code::ok);
    }
  }

  std::unique_ptr<Peer> peer;
  std::unique_ptr<Transport> transport;
  EndpointId to_peer = 0;
};

TEST_F(UcxPeerDeath, EndsEverySendAndLetsReceivesBeCancelled) {
  ping(10);
  const std::vector<std::byte> source(kLarge, std::byte{2});
  std::vector<std::byte> target(kLarge);
  std::uint64_t word = 0;
  Tracked unreceived;
  Tracked flowing;
  Tracked arriving;
  Tracked unsent;
  send(*transport, to_peer, kNeverReceived, source.data(), kLarge, unreceived);
  send(*transport, to_peer, kToPeer, source.data(), kLarge, flowing);
  recv(*transport, kNeverSent, &word, sizeof word, unsent);
  recv(*transport, kFromPeer, target.data(), kLarge, arriving);
  ASSERT_TRUE(progress_until([&] { return target[0] != std::byte{0}; }));
  ASSERT_FALSE(arriving.ended());

  peer->kill();
  const auto death = Clock::now();
  ASSERT_TRUE(
      progress_until([&] { return unreceived.ended() && flowing.ended(); }, kDeathSeenWithin));
  RecordProperty("seen_after_ms",
                 static_cast<int>((Clock::now() - death) / std::chrono::milliseconds(1)));
  EXPECT_EQ(unreceived.code, Code::peer_lost);
  // The peer may have received the whole message before it died.
  EXPECT_THAT(flowing.code, ::testing::AnyOf(Code::ok, Code::peer_lost));

  Tracked late;
  send(*transport, to_peer, kPing, &word, sizeof word, late);
  ASSERT_TRUE(progress_until([&] { return late.ended(); }));
  EXPECT_EQ(late.code, Code::peer_lost);

  // The message of `arriving` is interrupted, so the receive ends when the endpoint closes. The
  // message of `unsent` has not been sent.
  transport->cancel(arriving);
  transport->cancel(unsent);
  transport->close(to_peer);
  ASSERT_TRUE(progress_until([&] { return arriving.ended() && unsent.ended(); }, kDeathSeenWithin));
  EXPECT_EQ(unsent.code, Code::cancelled);
  EXPECT_NE(arriving.code, Code::ok);
  for (const Tracked* operation : {&unreceived, &flowing, &late, &arriving, &unsent}) {
    EXPECT_EQ(operation->ends, 1);
    EXPECT_FALSE(operation->ended_in_post);
  }
}

// The control plane may learn of the death before UCX, so the transport's owner closes the endpoint
// first. Messages to living peers continue; here the process sends to itself.
TEST_F(UcxPeerDeath, OwnerThatClosesFirstGetsEverythingBack) {
  auto self = transport->connect(transport->address());
  ASSERT_TRUE(self.is_ok()) << self.status().to_string();
  ping(10);
  auto source = std::make_unique<std::vector<std::byte>>(kLarge, std::byte{2});
  auto target = std::make_unique<std::vector<std::byte>>(kLarge);
  Tracked sent[2];
  Tracked arriving;
  send(*transport, to_peer, kNeverReceived, source->data(), kLarge, sent[0]);
  send(*transport, to_peer, kToPeer, source->data(), kLarge, sent[1]);
  recv(*transport, kFromPeer, target->data(), kLarge, arriving);
  ASSERT_TRUE(progress_until([&] { return target->front() != std::byte{0}; }));

  peer->kill();
  transport->cancel(arriving);
  transport->close(to_peer);
  ASSERT_TRUE(progress_until([&] { return sent[0].ended() && sent[1].ended() && arriving.ended(); },
                             kDeathSeenWithin));
  EXPECT_EQ(sent[0].code, Code::peer_lost);
  // As in the test above, the peer may have received the whole message before it died.
  EXPECT_THAT(sent[1].code, ::testing::AnyOf(Code::ok, Code::peer_lost));
  EXPECT_NE(arriving.code, Code::ok);
  // A sanitizer reports any later access to these buffers.
  source.reset();
  target.reset();
  settle({transport.get()});
}

TEST_F(UcxPeerDeath, IsSeenByOneThatSendsOnlySmallMessages) {
  ping(10);
  peer->kill();
  std::uint64_t word = 0;
  Code last = Code::ok;
  std::deque<Tracked> sent;
  ASSERT_TRUE(progress_until(
      [&] {
        // Only a few sends are in flight, since the send queue fills up if the peer does not read.
        while (!sent.empty() && sent.front().ended()) {
          if (sent.front().code != Code::ok) last = sent.front().code;
          sent.pop_front();
        }
        if (sent.size() < 4 && last == Code::ok) {
          send(*transport, to_peer, kPing, &word, sizeof word, sent.emplace_back());
        }
        return last != Code::ok && sent.empty();
      },
      kDeathSeenWithin));
  EXPECT_EQ(last, Code::peer_lost);
}

TEST_F(UcxPeerDeath, WakesASurvivorThatSleeps) {
  ping(10);
  const std::vector<std::byte> source(kLarge, std::byte{2});
  Tracked sent;
  send(*transport, to_peer, kNeverReceived, source.data(), kLarge, sent);
  peer->kill();
  const auto deadline = Deadline::after(kDeathSeenWithin);
  while (!sent.ended() && !deadline.passed()) {
    if (transport->progress() > 0) continue;
    const auto armed = transport->arm();
    ASSERT_TRUE(armed.is_ok()) << armed.status().to_string();
    pollfd waiting{transport->wake_fd(), POLLIN, 0};
    if (*armed) ::poll(&waiting, 1, deadline.left_ms());
  }
  EXPECT_TRUE(sent.ended());
  EXPECT_EQ(sent.code, Code::peer_lost);
}

}  // namespace
}  // namespace xylem::transport::testing

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--peer") {
    return xylem::transport::testing::run_peer();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
