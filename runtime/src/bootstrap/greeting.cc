// SPDX-License-Identifier: Apache-2.0
//
// Runs a handshake over a socket.
#include "bootstrap/greeting.h"

#include "bootstrap/socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace xylem::runtime {

Greeting::Greeting(UniqueFd fd, Handshake handshake, std::optional<std::uint32_t> callee)
    : fd_(std::move(fd)),
      handshake_(std::move(handshake)),
      callee_(callee),
      is_connecting_(callee.has_value()) {
  if (callee_) WireWriter(out_).raw(handshake_.preamble());
}

Result<Greeting::Want> Greeting::advance() {
  XYLEM_TRY(finish_connecting());
  for (;;) {
    XYLEM_TRY(const bool all_sent, send());
    if (!all_sent) return Want::output;
    if (handshake_.state() == Handshake::State::done) return Want::nothing;
    XYLEM_TRY(const bool all_here, receive());
    if (!all_here) return Want::input;
    XYLEM_TRY(handle_frame());
  }
}

Status Greeting::finish_connecting() {
  if (!is_connecting_) return {};
  const int error = connect_outcome(fd_.get());
  if (error != 0) {
    return failure(error == ECONNREFUSED ? Code::peer_lost : Code::link_lost, error_text(error));
  }
  is_connecting_ = false;
  return {};
}

Result<bool> Greeting::send() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      out_.erase(out_.begin(), out_.begin() + sent);
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return failure(Code::link_lost, error_text(errno));
    }
  }
  return true;
}

Result<bool> Greeting::receive() {
  // Never reads more than the handshake needs: later bytes are for the object that takes the
  // connection over after the handshake.
  while (in_.size() < handshake_.wants()) {
    std::array<std::byte, Handshake::kProofBytes> piece;
    const std::size_t wanted = handshake_.wants() - in_.size();
    const ssize_t got = ::recv(fd_.get(), piece.data(), wanted, 0);
    if (got > 0) {
      WireWriter(in_).raw(std::span(piece).first(static_cast<std::size_t>(got)));
    } else if (got == 0) {
      return failure(Code::link_lost, "it hung up");
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return failure(Code::link_lost, error_text(errno));
    }
  }
  return true;
}

Status Greeting::handle_frame() {
  const ByteVector whole = std::exchange(in_, {});
  Status status = handshake_.receive(whole, out_);
  // The peer learns the reason from the reply in `out_`, a proof or a refusal. The reply always
  // fits into the socket's buffer.
  if (!status) static_cast<void>(send().is_ok());
  return status;
}

}  // namespace xylem::runtime
