// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/work.h"

#include "calls/operation.h"
#include "process_guard.h"
#include "progress/progress.h"

#include <fmt/format.h>

namespace xylem {

Work::Work(runtime::Operation& operation) noexcept : operation_(&operation) {}

Work::Work(const Work& other) noexcept
    : operation_(other.operation_), source_(other.source_), count_(other.count_) {
  if (operation_ != nullptr) operation_->acquire();
}

Work::~Work() {
  if (operation_ != nullptr) operation_->release();
}

bool Work::test() const noexcept {
  if (operation_ == nullptr || operation_->ended()) return true;
  if (operation_->process().allows()) operation_->progress().poke();
  return ended();
}

bool Work::ended() const noexcept {
  return operation_ == nullptr || operation_->ended() || operation_->process().is_forked();
}

Status Work::wait() const {
  // Every operation times out by itself, so this wait ends, too.
  return wait_until(Deadline::at(Clock::time_point::max()), runtime::Waiter::application);
}

Status Work::wait_for(std::chrono::nanoseconds limit) const {
  return wait_until(Deadline::after(limit), runtime::Waiter::application);
}

Status Work::wait_beside_program(std::chrono::nanoseconds limit) const {
  runtime::ApplicationThread::leave_out_this_thread();
  return wait_until(Deadline::after(limit), runtime::Waiter::helper);
}

Status Work::wait_until(Deadline deadline, runtime::Waiter waiter) const {
  if (operation_ == nullptr) return Status::ok();
  if (!operation_->ended()) {
    if (Status forked = operation_->process().check(); !forked) return forked;
    if (!operation_->progress().wait(operation_->end_flag(), deadline, waiter)) {
      return failure(Code::timed_out,
                     "the operation goes on; wait again, or abort its communicator");
    }
  }
  return operation_->outcome();
}

Status Work::block(const Stream& stream) const {
  if (operation_ == nullptr) return {};
  // When a captured operation ends, all ranks have captured the call, but it may not have run.
  if (operation_->enqueued.is_captured && operation_->enqueued.stream != stream.handle) {
    return failure(Code::unsupported,
                   "the operation is captured on another stream; let this stream wait for that one "
                   "by an event");
  }
  if (operation_->ended()) return {};
  XYLEM_TRY(operation_->process().check());
  const Memory& memory = operation_->call.memory;
  auto* const compute = operation_->run.device.compute;
  if (compute == nullptr || memory != stream.device) {
    return failure(Code::invalid_argument,
                   fmt::format("the operation uses {} memory (device {}), the stream is of {} "
                               "device {}; wait() for the operation instead",
                               name(memory.kind), memory.device, name(stream.device.kind),
                               stream.device.device));
  }
  if (operation_->mesh != nullptr) {
    if (operation_->enqueued.is_captured) return {};
    XYLEM_TRY(const bool is_known,
              operation_->mesh->block(stream.handle, operation_->enqueued.number));
    if (is_known) return {};
  }
  XYLEM_TRY(const auto gate, compute->gate_before(stream.handle));
  operation_->open_at_end(gate);
  return {};
}

bool Work::runs_on_devices() const noexcept {
  return operation_ != nullptr && operation_->mesh != nullptr;
}

bool Work::is_captured() const noexcept {
  return operation_ != nullptr && operation_->enqueued.is_captured;
}

void Work::set_timeout(std::chrono::nanoseconds limit) const noexcept {
  if (operation_ != nullptr) operation_->set_timeout(limit);
}

Status Work::status() const {
  if (operation_ == nullptr) return Status::ok();
  if (!operation_->ended()) {
    if (Status forked = operation_->process().check(); !forked) return forked;
    return failure(Code::busy, "the operation goes on");
  }
  return operation_->outcome();
}

bool Work::failed_alone() const noexcept {
  return operation_ != nullptr && operation_->ended() && operation_->fails_alone;
}

std::uint32_t Work::source() const noexcept {
  return operation_ == nullptr ? source_ : operation_->source;
}

std::uint64_t Work::count() const noexcept {
  return operation_ == nullptr ? count_ : operation_->received;
}

}  // namespace xylem
