// SPDX-License-Identifier: Apache-2.0
#include "calls/scheduler.h"

#include <string>
#include <utility>

namespace xylem::runtime {

void Scheduler::CallScope::catch_up() noexcept {
  was_quiet_ = false;
  scheduler_.launch_submitted(token());
}

void Scheduler::CallScope::finish() {
  Progress& progress = scheduler_.progress_;
  progress.note_call();
  scheduler_.run(token());
  progress.release();
  scheduler_.thread_.wake_if_idle();
}

void Scheduler::start(Operation& operation) {
  const CallScope scope(*this);
  if (!scope.has_token()) return submit(operation);
  launch(scope.token(), operation);
}

void Scheduler::submit(Operation& operation) noexcept {
  progress_.note_call();
  Operation* head = submitted_.load(std::memory_order_relaxed);
  do {
    operation.lists.queue_next = head;
  } while (!submitted_.compare_exchange_weak(head, &operation, std::memory_order_release,
                                             std::memory_order_relaxed));
  progress_.notify();
  thread_.wake_if_idle();
}

void Scheduler::launch(Token token, Operation& operation) noexcept {
  activate(token, operation);
  operation.owner->launch(token, operation);
}

void Scheduler::launch_submitted(Token token) noexcept {
  Operation* oldest = take_submitted();
  while (oldest != nullptr) {
    Operation& operation = *oldest;
    oldest = std::exchange(operation.lists.queue_next, nullptr);
    // launch() may end the operation, which releases the engine's reference, and the submitter may
    // have dropped its handle.
    operation.acquire();
    launch(token, operation);
    operation.release();
  }
  if (is_launching_.load(std::memory_order_relaxed)) {
    is_launching_.store(false, std::memory_order_release);
  }
}

/// Removes and returns all submitted operations, oldest first; null if there are none.
Operation* Scheduler::take_submitted() noexcept {
  if (submitted_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  is_launching_.store(true, std::memory_order_relaxed);
  Operation* newest = submitted_.exchange(nullptr, std::memory_order_acq_rel);
  Operation* oldest = nullptr;
  while (newest != nullptr) {
    Operation* next = newest->lists.queue_next;
    newest->lists.queue_next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

void Scheduler::activate(Token /*token*/, Operation& operation) noexcept {
  set_pending(pending_.load(std::memory_order_relaxed) + 1);
  engine_.activate(operation);
}

unsigned Scheduler::run(Token token) {
  headers_.get(token).hand_over_completed();
  return engine_.run();
}

// ---- a source of work ----

unsigned Scheduler::turn(Token token) {
  launch_submitted(token);
  return run(token);
}

/// An operation that is being launched leaves `submitted_` before it is counted in `pending_`;
/// `is_launching_` is true in between. The three are read in this order, so no operation is missed.
WorkSource::Need Scheduler::need() const noexcept {
  const bool has_submitted = submitted_.load(std::memory_order_acquire) != nullptr ||
                             is_launching_.load(std::memory_order_acquire);
  return has_submitted || pending() > 0 ? Need::turns : Need::nothing;
}

bool Scheduler::arm(Token /*token*/, std::vector<pollfd>& /*descriptors*/) {
  return !engine_.evict_views();
}

// ---- what the engine reports ----

void Scheduler::on_ended(Execution& execution, Status outcome) {
  Operation& operation = *as_operation(&execution);
  const Token token = progress_.assert_held();
  operation.owner->on_ended(token, operation);
  if (const Status mesh = operation.check_mesh(); outcome && !mesh) {
    outcome = operation.owner->on_compute_error(token, operation, mesh);
  }
  set_pending(pending_.load(std::memory_order_relaxed) - 1);
  if (!outcome && operation.enqueued.is_shared) {
    // The devices of peers may still access the buffers, although the call has failed.
    outcome = Error{.code = outcome.code(),
                    .message = std::string(outcome.message()),
                    .peer = outcome.peer(),
                    .holds_buffers = true};
  }
  operation.end(std::move(outcome));
  operation.release();
  progress_.announce_ended();
}

void Scheduler::on_wire_error(Execution& execution, std::uint32_t peer, Code code) {
  Operation& operation = *as_operation(&execution);
  operation.owner->on_wire_error(progress_.assert_held(), operation, peer, code);
}

void Scheduler::on_compute_error(Execution& execution, const Status& why) {
  Operation& operation = *as_operation(&execution);
  (void)operation.owner->on_compute_error(progress_.assert_held(), operation, why);
  // If this rank has left the communicator, on_compute_error() announces no error. So the operation
  // is failed here in any case.
  engine_.fail(execution, why);
}

void Scheduler::on_body(Message& message) { listener_of(operation_of(message)).on_body(message); }

void Scheduler::on_copied(Execution& execution) {
  Operation& operation = *as_operation(&execution);
  listener_of(operation).on_copied(operation);
}

void Scheduler::on_late_gate(Execution& execution, const execution::OnDevice::Copy& copy) {
  Operation& operation = *as_operation(&execution);
  listener_of(operation).on_late_gate(operation, copy);
}

}  // namespace xylem::runtime
