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

void ControlRequests::flood(ByteSpan message, std::uint64_t topic) {
  add({.to = std::nullopt, .topic = topic, .bytes = {message.begin(), message.end()}});
}

void ControlRequests::send(std::uint32_t rank, ByteSpan message) {
  add({.to = rank, .bytes = {message.begin(), message.end()}});
}

void ControlRequests::add(Outgoing message) {
  const Lock lock(mutex_);
  messages_.push_back(std::move(message));
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

std::vector<ControlRequests::Outgoing> ControlRequests::take_messages() {
  const Lock lock(mutex_);
  return std::exchange(messages_, {});
}

std::vector<std::uint32_t> ControlRequests::take_wanted() {
  const Lock lock(mutex_);
  return std::exchange(wanted_, {});
}

}  // namespace xylem::runtime
