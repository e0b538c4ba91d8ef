// SPDX-License-Identifier: Apache-2.0
#include "task.h"

#include "failure.h"
#include "pending.h"
#include "python.h"
#include "recorder.h"
#include "xylem/base/keep.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

/// The longest time for which wait() waits for copies on a device.
constexpr std::chrono::minutes kLongestCopy{30};

bool holds_buffers(const Works& works) noexcept {
  return std::ranges::any_of(works,
                             [](const xylem::Work& work) { return work.status().holds_buffers(); });
}

/// Keeps tensors alive until the process exits, since a transport may still write to them.
void keep(const Tensors& tensors) { keep_until_exit(std::make_shared<Tensors>(tensors)); }

/// The first operation that has failed, or null.
const xylem::Work* failed_of(const Works& works) noexcept {
  const auto failed = std::ranges::find_if(works, [](const auto& work) { return !work.status(); });
  return failed == works.end() ? nullptr : &*failed;
}

/// The status of the first operation that has failed; OK if none has.
Status outcome_of(const Works& works) {
  const xylem::Work* const failed = failed_of(works);
  return failed ? failed->status() : Status();
}

/// Warns of the first message of the group that is shorter than its tensor.
void note_length(const Task& task, Pending& group) noexcept {
  const bool is_receive =
      task.name().type == c10d::OpType::RECV || task.name().type == c10d::OpType::RECVANYSOURCE;
  if (!is_receive) return;
  try {
    const at::Tensor& tensor = task.outputs().front();
    const auto room = static_cast<std::uint64_t>(tensor.numel());
    const std::uint64_t came = task.works().front().count() / elements_per_item(tensor);
    if (came >= room || !group.note_short_message()) return;
    TORCH_WARN("xylem: a receive into a tensor of ", room, " elements got a message of ", came,
               " from rank ", task.works().front().source(),
               "; the rest of the tensor is unchanged. Further such messages of this group are not "
               "logged",
               group.note());
  } catch (...) {  // NOLINT(bugprone-empty-catch)
    // Python may be configured to raise warnings as errors. A call that has succeeded must not
    // raise an error.
  }
}

}  // namespace

Task::Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs)
    // Titles and inputs are only needed if a profiler is active.
    : Work(rank,
           name.type,
           at::hasCallbacks() ? name.title : nullptr,
           at::hasCallbacks() ? std::optional<Tensors>(inputs) : std::nullopt),
      name_(name),
      origin_(Pending::origin()),
      pending_(std::move(pending)) {}

void Task::adopt(StartedCall begun) {
  begun_ = std::move(begun);
  is_in_stream_order_ = belongs_in_stream_order();
  if (begun_.device && (!begun_.copies.empty() || is_captured())) {
    for (const OutputCopy& copy : begun_.copies) begun_.kept.push_back(copy.memory);
    copy_state_.store(CopyState::due, std::memory_order_relaxed);
    if (is_in_stream_order_ || works_ended()) enqueue_copies();
  }
  if (ended()) return settle();
  pending_->add(TaskPtr::reclaim_copy(this));
}

bool Task::is_ordered() const noexcept {
  if (name_.type != c10d::OpType::COALESCED) return !is_message(name_.type);
  return std::ranges::any_of(begun_.parts, [](const TaskPtr& part) { return part->is_ordered(); });
}

Origin Task::origin_of_callbacks() const noexcept {
  if (is_in_stream_order_) return origin_;
  if (!is_ordered()) return {Origin::kUnknown, pending_->id()};
  return Origin::callback_of(origin_, /*is_sparse=*/false, number_, pending_->id());
}

bool Task::works_ended() const noexcept {
  bool all = true;
  for_each_work([&](const xylem::Work& work) { all = all && work.ended(); });
  return all && begun_.sparse.ended();
}

bool Task::ended() const noexcept { return works_ended() && have_copies_ended(); }

bool Task::settle_if_ended() noexcept {
  if (settled_.load(std::memory_order_acquire)) return true;
  bool all = true;
  for_each_work([&](const xylem::Work& work) { all = all && work.test(); });
  all = all && begun_.sparse.ended();
  if (all) enqueue_copies_if_ended();
  all = all && have_copies_ended();
  if (all) settle();
  return all;
}

void Task::settle() noexcept {
  if (settled_.load(std::memory_order_acquire)) return;
  // Each part is settled under its own lock, and its callbacks run under no lock.
  for (const TaskPtr& part : begun_.parts) part->settle();
  const Status outcome = outcome_of(begun_.works);
  Recorder::get().end(name_.record, outcome.is_ok());
  const xylem::Work* const failed = failed_of(begun_.works);
  if (!failed) {
    note_length(*this, *pending_);
  } else if (!failed->failed_alone()) {
    // Dump before any waiter learns of the failure and possibly ends the process.
    if (is_worth_a_record(outcome)) Recorder::get().dump_once();
    if (breaks_group(outcome)) pending_->note_failure();
  }
  // Destroying tensors may require Python's lock, which a thread that waits for `settling_` may
  // hold. So the tensors are destroyed after `settling_` has been released.
  Tensors kept;
  std::vector<OutputCopy> copies;
  {
    const Lock lock(settling_);
    if (settled_.load(std::memory_order_relaxed)) return;
    // enqueue_copies() has moved the copies on a device, or will do so.
    if (!begun_.device) copies.swap(begun_.copies);
    const std::string remedy = has_own_limit_ ? "" : remedy_of_group_limit(outcome);
    std::exception_ptr error =
        outcome ? copy_error() : exception_of(outcome, remedy + pending_->note());
    try {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      if (!error) {
        for (const OutputCopy& copy : copies) copy.tensor.copy_(copy.memory);
      }
      for (const TaskPtr& part : begun_.parts) {
        if (!error) error = part->exception();
      }
    } catch (...) {
      error = std::current_exception();
    }
    if (holds_buffers(begun_.works)) {
      keep(begun_.kept);
      keep(begun_.outputs);
      for (const OutputCopy& copy : copies) keep({copy.memory});
    }
    kept.swap(begun_.kept);
    Work::finish(error);
    settled_.store(true, std::memory_order_release);
  }
  pending_->remove(*this);  // The caller holds a reference, so the task survives.
}

void Task::complete_futures() noexcept {
  for (const TaskPtr& part : begun_.parts) part->complete_futures();
  Futures futures;
  bool is_first = false;
  {
    const Lock lock(settling_);
    futures = futures_;
    is_first = !std::exchange(has_completed_futures_, true);
  }
  if (!futures.values && !futures.results) return;
  if (is_first) {
    const Pending::Callbacks callbacks;
    complete(futures);
  } else if (futures.values) {
    futures.values->wait();
  }
}

void Task::wait_for_end(WorkWait way, std::chrono::nanoseconds limit) noexcept {
  const Deadline deadline = Deadline::after(limit);
  for_each_work([&](const xylem::Work& work) { (void)(work.*way)(deadline.left()); });
  begun_.sparse.wait(deadline);
  wait_for_copies(deadline);
}

bool Task::isCompleted() {
  if (!settle_if_ended()) return false;
  complete_futures();
  return true;
}

bool Task::isSuccess() const { return settled_.load(std::memory_order_acquire) && !exception(); }

int Task::sourceRank() const {
  if (name_.type != c10d::OpType::RECVANYSOURCE && name_.type != c10d::OpType::RECV) {
    return Work::sourceRank();
  }
  if (begun_.device) {
    // The message may not have arrived: in the order of streams, wait() does not block.
    const WithoutPython released;
    (void)begun_.works.front().wait();
  }
  return pending_->rank_of(begun_.works.front().source());
}

Tensors Task::result() {
  if (!isCompleted() && !is_in_stream_order_)
    refuse(c10::str(name_.title, ": result() before the work has completed"));
  return begun_.outputs;
}

bool Task::wait(std::chrono::milliseconds timeout) {
  if (begun_.sparse.are_of_this_thread() && !begun_.sparse.ended()) {
    refuse(
        "a callback of an all_reduce of sparse tensors waits for a barrier behind another one of "
        "its group, which begins only after it");
  }
  // A call that is part of a graph may have ended for the host before the graph runs.
  const bool is_for_streams = is_captured() || (timeout == kNoTimeout && is_in_stream_order_);
  if (is_for_streams && (!settle_if_ended() || (is_captured() && !exception()))) {
    make_current_stream_wait();
    return true;
  }
  if (timeout == kNoTimeout) {
    for_each_work([](const xylem::Work& work) { (void)work.wait(); });
    begun_.sparse.wait(Deadline::at(Clock::time_point::max()));  // Each has its time limit.
    wait_for_copies(Deadline::after(kLongestCopy));
    settle();
  } else if (wait_for_end(&xylem::Work::wait_for, timeout); !settle_if_ended()) {
    check(failure(Code::timed_out,
                  c10::str(name_.title, " has not completed within ", timeout.count(),
                           " ms; it goes on: wait again, or abort the group")));
  }
  // All calls before a barrier have ended. The program may never wait for them, so they are settled
  // here.
  if (name_.type == c10d::OpType::BARRIER) pending_->sweep(Pending::kAll);
  complete_futures();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void Task::synchronize() {
  const WithoutPython released;  // Torch calls this with Python's lock, which callbacks may need.
  wait();
}

void Task::abort() {
  check(failure(Code::unsupported,
                "one operation cannot be aborted: abort its group "
                "(torch.distributed.distributed_c10d._abort_process_group)"));
}

FuturePtr Task::future(FuturePtr Futures::*which, c10::TypePtr type) {
  if (which == &Futures::values && is_in_stream_order_ && is_ordered()) {
    return future_in_stream_order();
  }
  auto made = make_future(std::move(type), begun_.device.get());
  bool is_late = false;
  {
    const Lock lock(settling_);
    is_late = has_completed_futures_;
    FuturePtr& slot = futures_.*which;
    if (!is_late && slot) return slot;
    if (!is_late) slot = made;
  }
  if (is_late) {
    Futures late;
    late.*which = made;
    complete(late);
    return made;
  }
  bool is_served = false;
  try {
    is_served = pending_->serve(TaskPtr::reclaim_copy(this));
  } catch (...) {
    const Lock lock(settling_);
    if (futures_.*which == made) (futures_.*which).reset();
    throw;
  }
  if (!is_served) complete_futures();
  return made;
}

void Task::complete(const Futures& futures) const noexcept {
  const auto& [values, results] = futures;
  const auto tell = [](const std::exception& callback) {
    TORCH_WARN("xylem: a callback of a future failed: ", callback.what());
  };
  std::exception_ptr error = exception();
  c10::OptionalStreamGuard guard;
  try {
    // The event of the future is recorded on the current stream. Choose a stream without other
    // work, so that streams that wait for the future wait for nothing else.
    if (begun_.device) guard.reset_stream(begun_.device->own(OwnStreams::Purpose::prompt).torch);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    // The user may have completed the future already.
    if (values && error) {
      values->setErrorIfNeeded(error);
    } else if (values && !values->completed()) {
      values->markCompleted(c10::IValue(begun_.outputs));
    }
  } catch (const std::exception& callback) {
    tell(callback);
  }
  try {
    if (!results || results->completed()) return;
    const bool is_late = outcome_of(begun_.works).code() == Code::timed_out;
    const auto result = is_late ? c10d::WorkResult::TIMEOUT
                        : error ? c10d::WorkResult::COMM_ERROR
                                : c10d::WorkResult::SUCCESS;
    results->markCompleted(c10::IValue(static_cast<std::uint8_t>(result)));
  } catch (const std::exception& callback) {
    tell(callback);
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFuture() {
  return future(&Futures::values, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFutureResult() {
  return future(&Futures::results, c10::IntType::get());
}

}  // namespace xylem::pytorch
