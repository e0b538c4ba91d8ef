// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_requests.h"

#include "bootstrap/socket.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace xylem::runtime {

Status ControlRequests::open() {
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_) return {};
  return failure(Code::exhausted, "cannot open the control plane: " + error_text(errno));
}

void ControlRequests::flood(ByteSpan message) {
  const Lock lock(mutex_);
  messages_.emplace_back(message.begin(), message.end());
  ::eventfd_write(wake_.get(), 1);
}

void ControlRequests::request_connection(std::uint32_t rank) {
  const Lock lock(mutex_);
  wanted_.push_back(rank);
  ::eventfd_write(wake_.get(), 1);
}

void ControlRequests::clear_wake() noexcept {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
}

std::vector<ByteVector> ControlRequests::take_messages() {
  const Lock lock(mutex_);
  return std::exchange(messages_, {});
}

std::vector<std::uint32_t> ControlRequests::take_wanted() {
  const Lock lock(mutex_);
  return std::exchange(wanted_, {});
}

}  // namespace xylem::runtime
