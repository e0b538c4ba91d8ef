// SPDX-License-Identifier: Apache-2.0
//
// Signals: those that end a launcher, and its children's deaths, as something to poll. While it
// lives they are blocked and read from a descriptor, and writing to a closed pipe is an error
// instead of a death.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <csignal>
#include <optional>

namespace xylem::tools {

/// One per process at a time. Only for single-threaded processes, since it changes the thread's
/// mask.
class Signals {
 public:
  static Result<Signals> take();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  Signals(Signals&& other) noexcept = default;
  Signals& operator=(Signals&&) = delete;
  ~Signals();

  /// Readable when a signal has come.
  int fd() const noexcept { return fd_.get(); }
  /// The next one: SIGINT, SIGTERM, SIGHUP or SIGCHLD.
  std::optional<int> next() const noexcept;
  /// What was blocked before, for programs to be started.
  const sigset_t& former_mask() const noexcept { return former_mask_; }

 private:
  Signals(UniqueFd fd, const sigset_t& former_mask)
      : fd_(std::move(fd)), former_mask_(former_mask) {}
  UniqueFd fd_;
  sigset_t former_mask_;
};

}  // namespace xylem::tools
