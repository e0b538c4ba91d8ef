// SPDX-License-Identifier: Apache-2.0
//
// ControlLink: one connection of the control plane, to a peer that has proven the job's secret.
// Outgoing frames are queued, and sent when the socket accepts them. The bytes that arrive are
// split into frames.
//
// How a peer's death is detected:
//
//   its process ends         its kernel closes the connection: end of stream or reset, at once
//   … and leaves a forked    the child keeps the connection open; but ranks of the same host watch
//     child behind           the process itself (pidfd), and inform the ranks of other hosts
//   its host or network dies the kernel's keepalive ends the connection, or this rank notices that
//                            bytes stay unacknowledged (Silence)
//   it is stopped, or busy   not detected: the peer is not dead, and its kernel still answers
//
// Xylem sends no heartbeats of its own: a stopped process cannot answer them, so it would be
// declared dead. TCP_USER_TIMEOUT is not set either: with this option, Linux 5.11 and later end a
// connection whose receive window stays full, even if the peer's kernel answers. A stopped process
// leaves its window full.
#pragma once

#include "bootstrap/control_frame.h"
#include "bootstrap/control_seal.h"
#include "bootstrap/host_identity.h"
#include "xylem/base/clock.h"
#include "xylem/base/silence.h"
#include "xylem/base/unique_fd.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace xylem::runtime {

class ControlLink {
 public:
  /// A peer that leaves this many bytes unread counts as lost, so that a stopped peer cannot fill
  /// this rank's memory.
  static constexpr std::size_t kMostQueued = std::size_t{64} << 20;

  ControlLink(UniqueFd fd, const Member& peer, const HostIdentity& self, const FrameKeys& keys);
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  /// Shuts the connection down: closing the descriptor alone would not end it, since a forked child
  /// may have a copy of the descriptor.
  ~ControlLink() { close(); }

  std::uint32_t rank() const noexcept { return rank_; }
  int fd() const noexcept { return fd_.get(); }
  /// Readable when the peer's process has ended; -1 if the process cannot be watched.
  int process_fd() const noexcept { return process_.get(); }
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  /// True if the connection crosses a network that can fail, so that check_silence() must be
  /// called.
  bool is_remote() const noexcept { return is_remote_; }

  void push(const ControlFrame& frame);
  /// How many frames with messages of this rank or of others have been pushed.
  std::uint64_t messages_pushed() const noexcept { return messages_pushed_; }
  std::size_t queued() const noexcept { return queue_.size() - sent_; }
  /// Sends as many of the queued bytes as the socket accepts. An error means that the connection
  /// has ended, and says how.
  Status flush();
  /// Records whether the poller must report that the socket is writable. True if the value changes.
  bool set_wants_write(bool wants) noexcept { return std::exchange(wants_write_, wants) != wants; }
  /// Reads bytes that have arrived, for frames(); true if more may have arrived. An error means
  /// that the connection has ended, and says how; frames() still returns the frames that arrived
  /// before.
  Result<bool> receive();
  FrameReader& frames() noexcept { return reader_; }

  /// Must be called regularly for remote peers. Returns an error if the peer's host has been silent
  /// for too long.
  Status check_silence(Clock::time_point now);

  /// Shuts down the sending direction: after the bytes sent so far, the peer reads the end of the
  /// stream.
  void finish_sending() noexcept;
  /// True if the peer's kernel has acknowledged everything that was pushed.
  bool all_acknowledged() const noexcept;
  void close() noexcept;

 private:
  UniqueFd fd_, process_;
  std::uint32_t rank_;
  bool is_remote_;
  RecordWriter writer_;
  ByteVector queue_;
  std::size_t sent_ = 0;
  std::uint64_t messages_pushed_ = 0;
  bool wants_write_ = false;
  RecordReader records_;
  FrameReader reader_;
  Silence silence_;
};

}  // namespace xylem::runtime
