// SPDX-License-Identifier: Apache-2.0
//
// Poller: an epoll set. A descriptor must be removed before it is closed: if a forked child has a
// copy, the epoll set would still report events of the closed descriptor.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

namespace xylem::runtime {

class Poller {
 public:
  static Result<Poller> create();

  /// Readable when a watched descriptor has an event.
  int fd() const noexcept { return epoll_.get(); }
  Status add(int fd, std::uint64_t tag, std::uint32_t events) const;
  Status change(int fd, std::uint64_t tag, std::uint32_t events) const;
  void remove(int fd) const noexcept;

  /// Waits up to `milliseconds` for events and returns some of them; valid until the next call.
  std::span<const epoll_event> wait(int milliseconds);

 private:
  Status control(int how, int fd, std::uint64_t tag, std::uint32_t events) const;

  UniqueFd epoll_;
  std::array<epoll_event, 64> ready_{};
};

}  // namespace xylem::runtime
