// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets as Xylem makes them: close-on-exec, without SIGPIPE, without delay, non-blocking,
// and every wait with a deadline.
#pragma once

#include "bootstrap/socket_address.h"
#include "bootstrap/wire.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace xylem::runtime {

/// errno in words.
std::string error_text(int error);

/// Listens, with the longest queue that the system allows. `busy` if the port is taken.
Result<UniqueFd> listen_on(const SocketAddress& address);

/// Accepts one connection; an empty descriptor if none waits.
Result<UniqueFd> accept_from(int listener);

/// Starts to connect. When the socket is writable, connect_outcome() tells 0 or the error number.
Result<UniqueFd> start_connect(const SocketAddress& address);
int connect_outcome(int fd) noexcept;

/// Connects within the deadline. Codes: peer_lost if refused, timed_out, link_lost otherwise.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);

/// Waits for `events` of poll(); timed_out when the deadline passes.
Status wait_for(int fd, short events, Deadline deadline);

/// Sends or receives all of it; peer_lost at the end of the stream.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);

/// A connection that is being made fails after 7 s without an answer; by itself it takes 2 min.
void give_up_early(int fd) noexcept;

/// The kernel asks an idle peer's kernel for a sign of life: first after a second, then each
/// second, and gives up after `silence`. The peer's process need not run to answer.
void keep_alive(int fd, std::chrono::seconds silence) noexcept;

}  // namespace xylem::runtime
