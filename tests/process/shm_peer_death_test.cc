// SPDX-License-Identifier: Apache-2.0
//
// What a shared-memory transport still believes of a peer whose process was killed.
#include "unit/transport_fixture.h"
#include "xylem/base/log.h"
#include "xylem/transport/shm.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace xylem::transport::testing {
namespace {

constexpr std::size_t kAddressBytes = 32;
using Address = std::array<std::byte, kAddressBytes>;

bool give(int socket, std::span<const std::byte> address) {
  return address.size() == kAddressBytes &&
         ::write(socket, address.data(), kAddressBytes) == kAddressBytes;
}

Address take(int socket) {
  Address address{};
  EXPECT_EQ(::read(socket, address.data(), kAddressBytes), ssize_t{kAddressBytes});
  return address;
}

/// Sends a message, says that its program computes, and then waits for its end.
[[noreturn]] void run_peer(int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto transport = make_shm({}, Logger());
  if (!transport || !give(socket, (*transport)->address())) ::_exit(1);
  const auto survivor = (*transport)->connect(take(socket));
  if (!survivor) ::_exit(1);
  (*transport)->show_computing(true);
  const std::uint64_t value = 7;
  Tracked sent;
  send(**transport, *survivor, 1, &value, sizeof value, sent);
  while (true) (*transport)->progress();
}

TEST(ShmPeerDeath, WhoIsDeadDoesNotCompute) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const pid_t peer = ::fork();
  if (peer == 0) run_peer(sockets[1]);
  auto survivor = make_shm({}, Logger());
  ASSERT_TRUE(survivor.is_ok()) << survivor.status().to_string();
  ASSERT_TRUE(give(sockets[0], (*survivor)->address()));
  take(sockets[0]);
  // The survivor has no endpoint to the peer, which has only sent.
  std::uint64_t got = 0;
  Tracked received;
  recv(**survivor, 1, &got, sizeof got, received);
  ASSERT_TRUE(drive({survivor->get()}, [&] { return received.ended(); }));
  EXPECT_EQ(got, 7U);
  EXPECT_TRUE((*survivor)->do_peers_compute());
  (*survivor)->note_death();  // Of somebody else.
  EXPECT_TRUE((*survivor)->do_peers_compute());

  ::kill(peer, SIGKILL);
  ASSERT_EQ(::waitpid(peer, nullptr, 0), peer);
  (*survivor)->note_death();
  EXPECT_FALSE((*survivor)->do_peers_compute());
  ::close(sockets[0]);
  ::close(sockets[1]);
}

}  // namespace
}  // namespace xylem::transport::testing
