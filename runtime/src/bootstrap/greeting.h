// SPDX-License-Identifier: Apache-2.0
//
// Greeting: a connection whose peer has not proven the job's secret yet. It runs a Handshake over a
// non-blocking socket.
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
  /// What advance() must wait for before it can continue; `nothing` once the peer is proven.
  enum class Want : std::uint8_t { nothing, input, output };

  /// `callee` is the rank to which an outgoing connection is made; empty for an incoming one.
  Greeting(UniqueFd fd, Handshake handshake, std::optional<std::uint32_t> callee);

  int fd() const noexcept { return fd_.get(); }
  std::optional<std::uint32_t> callee() const noexcept { return callee_; }
  Clock::time_point since() const noexcept { return since_; }
  /// True once a valid preamble of the peer has arrived. If this rank is the caller, the peer may
  /// then have this rank's proof already.
  bool is_greeted() const noexcept { return handshake_.state() != Handshake::State::greeting; }

  /// Continues the handshake as far as is possible without blocking. Fails with peer_lost if the
  /// connection was refused, and with link_lost if it broke. If Handshake::receive() fails, sends
  /// its reply to the peer, and then fails with the same error.
  Result<Want> advance();

  /// The peer. Valid once advance() has returned Want::nothing.
  const Member& peer() const noexcept { return handshake_.peer(); }
  const FrameKeys& keys() const noexcept { return handshake_.keys(); }
  UniqueFd take_fd() noexcept { return std::move(fd_); }

 private:
  Status finish_connecting();
  /// Sends what is still to be sent. True if everything has been sent.
  Result<bool> send();
  /// Receives bytes. True if all bytes have arrived that the handshake needs next.
  Result<bool> receive();
  Status handle_frame();

  UniqueFd fd_;
  Handshake handshake_;
  std::optional<std::uint32_t> callee_;
  bool is_connecting_;
  ByteVector in_, out_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace xylem::runtime
