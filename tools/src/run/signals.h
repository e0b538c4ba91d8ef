// SPDX-License-Identifier: Apache-2.0
//
// Signals: a descriptor that reports the signals that end a launcher, and the deaths of its
// children. During the lifetime of a Signals object these signals are blocked, and writing to a
// closed pipe is an error instead of ending the process. Signals that the process already ignores,
// such as SIGHUP under nohup, stay ignored.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <csignal>
#include <optional>

namespace xylem::tools {

/// A process may have at most one such object at a time, and only a single thread, since the object
/// changes the signal mask of the thread.
class Signals {
 public:
  static Result<Signals> take();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  Signals(Signals&& other) noexcept = default;
  Signals& operator=(Signals&&) = delete;
  ~Signals();

  /// Readable when a signal has arrived.
  int fd() const noexcept { return fd_.get(); }
  /// The next signal: SIGINT, SIGTERM, SIGHUP or SIGCHLD. Nothing if none has arrived.
  std::optional<int> next() const noexcept;
  /// The signals that were blocked before, for programs to be started.
  const sigset_t& former_mask() const noexcept { return former_mask_; }

 private:
  Signals(UniqueFd fd, const sigset_t& former_mask)
      : fd_(std::move(fd)), former_mask_(former_mask) {}
  UniqueFd fd_;
  sigset_t former_mask_;
};

}  // namespace xylem::tools
