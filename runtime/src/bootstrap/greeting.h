// SPDX-License-Identifier: Apache-2.0
//
// Greeting: a connection that has not proven itself yet. It carries a Handshake over a socket that
// never blocks.
//
//   connecting ──connected──► proving ──handshake done──► proven
#pragma once

#include "bootstrap/handshake.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace xylem::runtime {

class Greeting {
 public:
  /// What has to happen before advance() can do more; `nothing` once the peer is proven.
  enum class Want : std::uint8_t { nothing, input, output };

  /// A connection on its way to the rank `callee`, or one that came in.
  Greeting(UniqueFd fd, Handshake handshake, std::optional<std::uint32_t> callee);

  int fd() const noexcept { return fd_.get(); }
  std::optional<std::uint32_t> callee() const noexcept { return callee_; }
  Clock::time_point since() const noexcept { return since_; }
  /// Whether the peer has said that it speaks our protocol. A caller has sent its proof by then.
  bool is_greeted() const noexcept { return handshake_.state() != Handshake::State::greeting; }

  /// Goes as far as it can. Errors: peer_lost, nobody listens there; link_lost, the connection
  /// broke; and those of Handshake::receive(), of which the peer has been told the reason.
  Result<Want> advance();

  /// Once proven.
  const Member& peer() const noexcept { return handshake_.peer(); }
  const FrameKeys& keys() const noexcept { return handshake_.keys(); }
  UniqueFd take_fd() noexcept { return std::move(fd_); }

 private:
  Status finish_connecting();
  /// True when everything has been sent.
  Result<bool> send();
  /// True when as much has come as the handshake wants.
  Result<bool> receive();
  Status hear();

  UniqueFd fd_;
  Handshake handshake_;
  std::optional<std::uint32_t> callee_;
  bool is_connecting_;
  ByteVector in_, out_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace xylem::runtime
