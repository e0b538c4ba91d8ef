// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a TCP connection over the loopback interface, and keys for both ends.
#pragma once

#include "xylem/base/unique_fd.h"
#include "xylem/transport/connections.h"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <utility>

namespace xylem::transport::testing {

/// Two connected non-blocking sockets.
inline std::pair<UniqueFd, UniqueFd> connected_sockets() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), raw, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), raw, &size), 0);
  UniqueFd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(caller.get(), raw, size), 0);
  UniqueFd callee(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(callee);
  return {std::move(caller), std::move(callee)};
}

inline SealKey test_key(std::uint8_t seed) {
  SealKey key{};
  key.fill(std::byte{seed});
  return key;
}

inline std::pair<Connection, Connection> connected_pair(Protection protection, Cipher cipher) {
  auto sockets = connected_sockets();
  return {Connection{std::move(sockets.first), protection, cipher, test_key(1), test_key(2)},
          Connection{std::move(sockets.second), protection, cipher, test_key(2), test_key(1)}};
}

}  // namespace xylem::transport::testing
