// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets: close-on-exec, without SIGPIPE, without Nagle's delay, non-blocking, and with a
// deadline for every wait.
#pragma once

#include "bootstrap/socket_address.h"
#include "bootstrap/wire_format.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace xylem::runtime {

/// The text of an errno value.
std::string error_text(int error);

/// Listens, with the longest queue that the system allows. Fails with `busy` if the port is taken.
Result<UniqueFd> listen_on(const SocketAddress& address);

/// Accepts one connection; an empty descriptor if none is pending.
Result<UniqueFd> accept_from(int listener);

/// Starts to connect. Once the socket is writable, connect_outcome() returns 0 or an errno value.
Result<UniqueFd> start_connect(const SocketAddress& address);
int connect_outcome(int fd) noexcept;

/// Connects within the deadline. Fails with peer_lost if the connection is refused, with timed_out
/// at the deadline, and otherwise with link_lost.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);

/// Waits for `events` of poll(). Fails with timed_out at the deadline.
Status wait_for(int fd, short events, Deadline deadline);

/// Sends or receives all bytes. Fails with peer_lost at the end of the stream.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);

/// Makes an attempt to connect fail after 7 s without an answer, instead of 2 min.
void fail_early(int fd) noexcept;

/// Makes this host's kernel probe the peer's kernel each second (Silence::kProbeInterval) while
/// nothing is sent. If probes stay unanswered for Silence::kLongest, this host's kernel ends the
/// connection. The peer's kernel answers even if the peer's process is stopped.
void keep_alive(int fd) noexcept;

}  // namespace xylem::runtime
