// SPDX-License-Identifier: Apache-2.0
//
// epoll.
#include "bootstrap/poller.h"

#include "bootstrap/socket.h"

#include <cerrno>

namespace xylem::runtime {

Result<Poller> Poller::create() {
  Poller poller;
  poller.epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (poller.epoll_) return poller;
  return failure(Code::exhausted, "cannot open an epoll set: " + error_text(errno));
}

Status Poller::control(int how, int fd, std::uint64_t tag, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_.get(), how, fd, &event) == 0) return {};
  return failure(Code::exhausted, "cannot watch a connection: " + error_text(errno));
}

Status Poller::add(int fd, std::uint64_t tag, std::uint32_t events) const {
  return control(EPOLL_CTL_ADD, fd, tag, events);
}

Status Poller::change(int fd, std::uint64_t tag, std::uint32_t events) const {
  return control(EPOLL_CTL_MOD, fd, tag, events);
}

void Poller::remove(int fd) const noexcept {
  if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const epoll_event> Poller::wait(int milliseconds) {
  const int count =
      ::epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()), milliseconds);
  // If a signal interrupts epoll_wait(), the result is empty: callers check their deadlines and
  // call wait() again.
  return std::span(ready_).first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

}  // namespace xylem::runtime
