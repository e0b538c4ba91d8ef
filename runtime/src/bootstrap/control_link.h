// SPDX-License-Identifier: Apache-2.0
//
// ControlLink: one connection of the control plane, to a peer that has proven the job's secret.
// Outgoing frames are queued, and sent when the socket accepts them. The bytes that arrive are
// split into frames.
//
// How a peer's death is detected:
//
//   its process ends         its kernel closes the connection: end of stream or reset, at once
//   … and leaves a forked    the child's copy keeps the connection open; on this host the process
//     child behind           itself is watched (pidfd), and its neighbours there inform the others
//   its host or network dies the kernel's keepalive ends the connection, or this rank notices that
//                            bytes stay unacknowledged (Silence)
//   it is stopped, or busy   it is not dead: its kernel still answers, and nothing else counts
//
// The program itself sends no heartbeats, since these would declare a stopped process dead.
// TCP_USER_TIMEOUT is not set, since Linux from 5.11 on then ends a connection whose peer's kernel
// answers but whose window is full, which is what a stopped process looks like.
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
  /// Ends the connection itself and not only this descriptor, since a forked child may have a copy.
  ~ControlLink() { close(); }

  std::uint32_t rank() const noexcept { return rank_; }
  int fd() const noexcept { return fd_.get(); }
  /// Readable when the peer's process has ended; -1 if the process cannot be watched.
  int process_fd() const noexcept { return process_.get(); }
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  /// True if there is a network in between, so that silence must be watched for.
  bool is_remote() const noexcept { return is_remote_; }

  void push(const ControlFrame& frame);
  std::size_t queued() const noexcept { return queue_.size() - sent_; }
  /// Sends as much as the socket accepts. An error says how the connection ended.
  Status flush();
  /// Notes whether the poller is to tell when the socket takes more. True if that is a change.
  bool set_wants_write(bool wants) noexcept { return std::exchange(wants_write_, wants) != wants; }
  /// Reads what has arrived; true if there may be more. An error says how the connection ended;
  /// frames that arrived before can still be read.
  Result<bool> receive();
  FrameReader& frames() noexcept { return reader_; }

  /// Must be called regularly for remote peers. Returns an error if the peer's host has been silent
  /// for too long.
  Status check_silence(Clock::time_point now);

  /// Ends the outgoing stream: the peer sees that nothing more will be sent.
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
  bool wants_write_ = false;
  RecordReader records_;
  FrameReader reader_;
  Silence silence_;
};

}  // namespace xylem::runtime
