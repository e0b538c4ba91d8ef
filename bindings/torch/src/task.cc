// SPDX-License-Identifier: Apache-2.0
#include "task.h"

#include "failure.h"
#include "python.h"
#include "recorder.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace xylem::pytorch {
namespace {

/// The copies after an operation follow those of earlier collectives, which end by their time-outs.
constexpr std::chrono::minutes kLongestCopy{30};

bool is_receive(c10d::OpType type) noexcept {
  return type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
}

bool holds_buffers(const Works& works) noexcept {
  return std::ranges::any_of(works,
                             [](const xylem::Work& work) { return work.status().holds_buffers(); });
}

/// Keeps tensors until the process ends, since a transport may still write to them.
void keep_for_ever(const Tensors& tensors) {
  static std::mutex mutex;
  // Never destroyed. It stays reachable, so leak checkers do not report it.
  static auto& kept = *new Tensors;
  const std::lock_guard lock(mutex);
  kept.insert(kept.end(), tensors.begin(), tensors.end());
}

/// The first that failed, or null.
const xylem::Work* failed_of(const Works& works) noexcept {
  const auto failed = std::ranges::find_if(works, [](const auto& work) { return !work.status(); });
  return failed == works.end() ? nullptr : &*failed;
}

/// Reports the failure of an operation, and returns it as an exception.
std::exception_ptr reported(const xylem::Work& failed, bool has_own_limit, TaskGroup& group) {
  const Status why = failed.status();
  if (!failed.failed_alone()) {
    // Dump before any waiter learns of the failure and possibly ends the process.
    if (is_worth_a_record(why)) Recorder::get().dump_once();
    if (breaks_group(why)) group.note_failure();
  }
  const std::string remedy = has_own_limit ? "" : remedy_of_group_limit(why);
  return exception_of(why, remedy + group.note());
}

/// Warns of the first message of the group that is shorter than its tensor.
void warn_if_short(const Launch& receive, TaskGroup& group) noexcept {
  try {
    const at::Tensor& tensor = receive.outputs.front();
    const xylem::Work& work = receive.works.front();
    const auto room = static_cast<std::uint64_t>(tensor.numel());
    const std::uint64_t came = work.count() / elements_per_item(tensor);
    if (came >= room || !group.note_short_message()) return;
    TORCH_WARN("xylem: a receive into a tensor of ", room, " elements got a message of ", came,
               " from rank ", work.source(),
               "; the rest of the tensor is unchanged. Further such messages of this group are not "
               "logged",
               group.note());
  } catch (...) {  // NOLINT(bugprone-empty-catch)
    // Python was told to make warnings errors, which a call that succeeded does not raise.
  }
}

/// Waits for one operation. No clock is read if it ends by its own time limit.
void wait_for(const xylem::Work& work, Task::Waiting way, Deadline deadline) noexcept {
  switch (way) {
    case Task::Waiting::to_end: (void)work.wait(); return;
    case Task::Waiting::to_deadline: (void)work.wait_for(deadline.left()); return;
    case Task::Waiting::beside_program: (void)work.wait_beside_program(deadline.left()); return;
  }
}

}  // namespace

bool Launch::ended() const noexcept {
  const auto have_ended = [](const std::vector<TaskPtr>& tasks) {
    return std::ranges::all_of(tasks, [](const auto& task) { return task->operations_ended(); });
  };
  return std::ranges::all_of(works, &xylem::Work::ended) &&
         std::ranges::all_of(awaited, &xylem::Work::ended) && have_ended(parts) &&
         have_ended(awaited_tasks);
}

Task::Task(int rank,
           c10d::OpType type,
           const char* title,
           std::shared_ptr<TaskGroup> group,
           const Tensors& inputs)
    // Titles and inputs are only needed if a profiler is active.
    : Work(rank,
           type,
           at::hasCallbacks() ? title : nullptr,
           at::hasCallbacks() ? std::optional<Tensors>(inputs) : std::nullopt),
      title_(title),
      group_(std::move(group)) {}

void Task::then(TaskPtr next, std::function<Launch()> start) {
  next->previous_ = TaskPtr::reclaim_copy(this);
  next_ = std::move(next);
  start_next_ = std::move(start);
}

void Task::begin(Launch launch, const TaskFacts& facts) {
  facts_ = facts;
  if (!previous_) return start(std::move(launch));
  group_->add(TaskPtr::reclaim_copy(this), place_);
  previous_->begin(std::move(launch), facts);
}

void Task::start(Launch launch) {
  launch_ = std::move(launch);
  const bool has_ended = launch_.ended(), has_next = next_.defined();
  auto state = State::copied;
  if (launch_.device) {
    is_in_stream_order_ = belongs_in_stream_order();
    for (const CopyBack& copy : launch_.copies) launch_.kept.push_back(copy.memory);
    if (!launch_.copies.empty()) state = State::copy_due;
  }
  if ((!has_ended || launch_.device) && !place_) group_->add(TaskPtr::reclaim_copy(this), place_);
  // From now on, other threads may settle the task.
  state_.store(state, std::memory_order_release);
  if (state == State::copy_due && (is_in_stream_order_ || has_ended)) copy_back();
  if (has_ended && copies_ended()) return settle();
  if (!has_next) return;
  try {
    serve(Completion::Kind::step);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
    // There is no thread for a server, so a thread that waits for the last step begins the next
    // one.
  }
}

void Task::follow(std::exception_ptr error,
                  const std::function<Launch()>& start_operations) noexcept {
  Launch launch;
  try {
    if (!error) launch = start_operations();
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    try_to_settle(std::move(error));
  } else {
    start(std::move(launch));
  }
}

bool Task::is_collective() const noexcept {
  if (opType_ != c10d::OpType::COALESCED) return !is_message(opType_);
  return std::ranges::any_of(launch_.parts,
                             [](const TaskPtr& part) { return part->is_collective(); });
}

Origin Task::origin_of_callbacks() const noexcept {
  if (is_in_stream_order_) return origin_;
  if (!is_collective()) return {Origin::Kind::unknown, group_->id(), 0};
  return origin_.of_callbacks(group_->id(), facts_.number);
}

bool Task::settle_if_ended() noexcept {
  if (is_settled()) return true;
  if (previous_ && !previous_->settle_if_ended()) return false;
  bool all = true;
  for (const xylem::Work& work : launch_.awaited) all = work.test() && all;
  for (const xylem::Work& work : launch_.works) all = work.test() && all;
  for (const TaskPtr& task : launch_.awaited_tasks) all = task->settle_if_ended() && all;
  for (const TaskPtr& part : launch_.parts) all = part->settle_if_ended() && all;
  if (!all) return false;
  copy_back();
  return copies_ended() && try_to_settle();
}

Status Task::outcome() const {
  if (const xylem::Work* const failed = failed_of(launch_.works)) return failed->status();
  Status first = previous_ ? previous_->outcome() : Status();
  for (const TaskPtr& part : launch_.parts) {
    if (first) first = part->outcome();
  }
  return first;
}

void Task::settle() noexcept {
  while (!try_to_settle()) state_.wait(State::settling, std::memory_order_acquire);
}

bool Task::try_to_settle(std::exception_ptr error) noexcept {
  auto state = state_.load(std::memory_order_acquire);
  do {
    if (state >= State::settling) return state > State::settling;
  } while (!state_.compare_exchange_weak(state, State::settling, std::memory_order_acq_rel));
  if (state == State::copied && !error) error = copy_back_error_;
  // Destroyed last, since this may need Python's lock.
  const Tensors kept = conclude(std::move(error));
  state_.store(State::settled, std::memory_order_release);
  state_.notify_all();
  group_->remove(place_);  // The caller has a reference.
  return true;
}

Tensors Task::conclude(std::exception_ptr error) noexcept {
  for (const TaskPtr& part : launch_.parts) part->settle();
  const xylem::Work* const failed = failed_of(launch_.works);
  if (failed || error || !next_) Recorder::get().end(facts_.record, !failed && !error);
  if (failed) {
    error = reported(*failed, facts_.has_own_limit, *group_);
  } else if (is_receive(opType_)) {
    warn_if_short(launch_, *group_);
  }
  // On a device, these belong to the thread that enqueues them.
  const auto copies = launch_.device ? std::vector<CopyBack>() : std::exchange(launch_.copies, {});
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const CopyBack& copy : copies) {
      if (!error) copy.tensor.copy_(copy.memory);
    }
    for (const TaskPtr& part : launch_.parts) {
      if (!error) error = part->exception();
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (next_) std::exchange(next_, {})->follow(error, std::exchange(start_next_, {}));
  Tensors kept = drop_kept();
  if (holds_buffers(launch_.works)) {
    keep_for_ever(kept);
    keep_for_ever(launch_.outputs);
    for (const CopyBack& copy : copies) keep_for_ever({copy.memory});
  }
  Work::finish(error);
  return kept;
}

void Task::fulfil() noexcept {
  for (const TaskPtr& part : launch_.parts) part->fulfil();
  FuturePtr values, results;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    values = values_;
    results = results_;
    is_first = state_.exchange(State::fulfilled) != State::fulfilled;
  }
  if (!values && !results) return;
  if (is_first) {
    const Servers::Callbacks callbacks;
    complete(values, results);
  } else if (values) {
    values->wait();
  }
}

void Task::wait_for_end(Waiting way, Deadline deadline) noexcept {
  if (previous_) {
    previous_->wait_for_end(way, deadline);
    if (!previous_->ended()) return;
    previous_->settle();  // This starts the operations of this task.
  }
  for (const xylem::Work& work : launch_.awaited) wait_for(work, way, deadline);
  for (const TaskPtr& task : launch_.awaited_tasks) task->wait_for_end(way, deadline);
  for (const TaskPtr& part : launch_.parts) part->wait_for_end(way, deadline);
  for (const xylem::Work& work : launch_.works) wait_for(work, way, deadline);
  // The copies follow operations that have ended, so they take little time.
  constexpr std::chrono::microseconds kPause{20};
  while (operations_ended()) {
    copy_back();
    if (copies_ended() || deadline.passed()) return;
    std::this_thread::sleep_for(kPause);
  }
}

bool Task::isCompleted() {
  if (!settle_if_ended()) {
    if (!ended()) return false;
    const WithoutPython released;  // The thread that settles the task may need Python's lock.
    settle();
  }
  fulfil();
  return true;
}

int Task::sourceRank() const {
  if (!is_receive(opType_)) return Work::sourceRank();
  if (launch_.device) {
    // wait() has not waited for the message.
    const WithoutPython released;
    (void)launch_.works.front().wait();
  }
  return group_->rank_of(launch_.works.front().source());
}

Tensors Task::result() {
  if (!isCompleted() && !is_in_stream_order_)
    refuse(c10::str(title_, ": result() before the work has completed"));
  return launch_.outputs;
}

bool Task::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout && is_in_stream_order_ && !settle_if_ended() && !ended()) {
    block_current_stream();
    return true;
  }
  if (timeout == kNoTimeout) {
    wait_for_end(Waiting::to_end, Deadline::after(kLongestCopy));
  } else if (wait_for_end(Waiting::to_deadline, Deadline::after(timeout)); !ended()) {
    check(failure(Code::timed_out, c10::str(title_, " has not completed within ", timeout.count(),
                                            " ms; it goes on: wait again, or abort the group")));
  }
  settle();
  // A barrier has waited for all calls before it, and nobody may wait for those again.
  if (opType_ == c10d::OpType::BARRIER) group_->sweep(TaskGroup::kAll);
  fulfil();
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

Task::FuturePtr Task::promise(FuturePtr& future, c10::TypePtr type) {
  if (&future == &values_ && is_in_stream_order_ && is_collective())
    return future_in_stream_order();
  auto made = make_future(std::move(type));
  bool is_late = false;
  {
    const std::lock_guard lock(mutex_);
    is_late = state_.load(std::memory_order_acquire) == State::fulfilled;
    if (!is_late && future) return future;
    if (!is_late) future = made;
  }
  if (is_late) {
    const bool is_values = &future == &values_;
    complete(is_values ? made : nullptr, is_values ? nullptr : made);
    return made;
  }
  bool is_served = false;
  try {
    is_served = serve(is_collective() ? Completion::Kind::collective : Completion::Kind::message);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (future == made) future.reset();
    throw;
  }
  if (!is_served) fulfil();
  return made;
}

bool Task::serve(Completion::Kind kind) {
  const auto task = TaskPtr::reclaim_copy(this);
  const auto wait = [task](std::chrono::nanoseconds limit) {
    task->wait_for_end(Waiting::beside_program, Deadline::after(limit));
  };
  const auto complete = [task] {
    task->settle();
    task->fulfil();
  };
  return group_->servers().serve({kind, [task] { return task->ended(); }, wait, complete},
                                 is_settled());
}

void Task::complete(const FuturePtr& values, const FuturePtr& results) const noexcept {
  const auto tell = [](const std::exception& callback) {
    TORCH_WARN("xylem: a callback of a future failed: ", callback.what());
  };
  std::exception_ptr error = exception();
  c10::OptionalStreamGuard guard;
  try {
    // What waits for the future must not wait for what the current stream has been given.
    if (launch_.device) guard.reset_stream(launch_.device->own(OwnStreams::Purpose::prompt).torch);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    // The user may have completed the future already.
    if (values && error) {
      values->setErrorIfNeeded(error);
    } else if (values && !values->completed()) {
      values->markCompleted(c10::IValue(launch_.outputs));
    }
  } catch (const std::exception& callback) {
    tell(callback);
  }
  try {
    if (!results || results->completed()) return;
    const bool is_late = outcome().code() == Code::timed_out;
    const auto result = is_late ? c10d::WorkResult::TIMEOUT
                        : error ? c10d::WorkResult::COMM_ERROR
                                : c10d::WorkResult::SUCCESS;
    results->markCompleted(c10::IValue(static_cast<std::uint8_t>(result)));
  } catch (const std::exception& callback) {
    tell(callback);
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFuture() {
  return promise(values_, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFutureResult() {
  return promise(results_, c10::IntType::get());
}

}  // namespace xylem::pytorch
