// SPDX-License-Identifier: Apache-2.0
#include "shm/owner.h"

#include <fmt/format.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace xylem::transport::shm {

void Owner::signal() const noexcept {
  const std::uint64_t one = 1;
  // write() fails only if the counter is full; the descriptor is then readable anyway.
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

Result<Sleeper> Sleeper::open(const Segment& own, int socket) {
  const auto error = [] {
    return failure(Code::exhausted, fmt::format("shared memory: no descriptor to sleep on: {}",
                                                std::strerror(errno)));
  };
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  UniqueFd events(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake || !events) return error();
  for (const int fd : {wake.get(), socket}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) != 0) return error();
  }
  return Sleeper(own, std::move(wake), std::move(events));
}

void Sleeper::prepare() noexcept {
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = ::read(wake_.get(), &wakes, sizeof wakes);
  delay();
  state_->store(OwnerState::asleep, std::memory_order_relaxed);
  delay();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  delay();
}

bool Sleeper::finish(bool is_idle) noexcept {
  if (!is_idle) state_->store(OwnerState::awake, std::memory_order_relaxed);
  return is_asleep_ = is_idle;
}

}  // namespace xylem::transport::shm
