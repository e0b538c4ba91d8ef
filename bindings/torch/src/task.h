// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d. It consists of Xylem's operations, the tensors that they use, and the
// work left to do after they have ended, such as copying results into the caller's tensors.
//
// A call on a device may be in the order of streams (OnDevice): wait() lets the current stream wait
// and returns, and the futures of collectives are complete at once, with events by which streams
// wait. For other calls on a device, threads wait, as they do for calls on the CPU.
//
// A call may consist of several steps, each a task that begins when the one before it has ended
// (Task::then()). The user has the last one.
#pragma once

#include "on_device.h"
#include "origin.h"
#include "servers.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace xylem::pytorch {

class Task;
class TaskGroup;
using TaskPtr = c10::intrusive_ptr<Task>;
/// The position of a task in the list of its group; none if it is not listed.
using TaskPlace = std::optional<std::list<TaskPtr>::iterator>;

/// Messages are not collectives: a barrier does not wait for them.
constexpr bool is_message(c10d::OpType type) noexcept {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}

/// The operations of a task, which have been started, and what it needs until they have ended.
struct Launch {
  Works works;
  std::vector<TaskPtr> parts;          ///< Tasks that this task combines.
  Works awaited;                       ///< Operations of other tasks that must have ended as well.
  std::vector<TaskPtr> awaited_tasks;  ///< The same for tasks that consist of several steps.
  Tensors outputs;                     ///< The tensors that result() and the future return.
  Tensors kept;                        ///< Other tensors that the operations use.
  std::vector<CopyBack> copies;        ///< Copies from staging memory to the caller's tensors.
  /// Null for a call on tensors in CPU memory.
  std::unique_ptr<OnDevice> device;

  /// Whether all the operations have ended. Makes no progress.
  bool ended() const noexcept;
};

/// What is known of a call when its operations have been started.
struct TaskFacts {
  std::uint64_t sequence = 0;  ///< Number of its first collective operation in the group.
  /// How many collectives, up to this one, the program or callbacks have called on the group.
  std::uint64_t number = 0;
  std::uint64_t record = 0;    ///< Id for the recorder.
  bool has_own_limit = false;  ///< Whether its time limit is not that of the group.
};

/// One call of c10d. Thread-safe; several threads may wait at the same time.
class Task final : public c10d::Work {
 public:
  /// `title`, a static string, names the task in errors and profilers.
  Task(int rank,
       c10d::OpType type,
       const char* title,
       std::shared_ptr<TaskGroup> group,
       const Tensors& inputs);

  /// When this task has ended, begins `next` with the operations that `start` starts. If this task
  /// fails, or `start` throws, `next` fails with the same error. Call it once, right before begin()
  /// of the last task.
  void then(TaskPtr next, std::function<Launch()> start);
  /// Takes over the operations of the call; of several steps, those of the first one. Call it once,
  /// before the user gets the task. The group then holds the task until it is settled, so the
  /// tensors live that long even if nobody else holds it.
  void begin(Launch launch, const TaskFacts& facts);

  const char* title() const noexcept { return title_; }
  const Launch& launch() const noexcept { return launch_; }
  /// Null for a call on tensors in CPU memory.
  const OnDevice* device() const noexcept { return has_begun() ? launch_.device.get() : nullptr; }
  const Origin& origin() const noexcept { return origin_; }
  /// The origin of calls that the callbacks of its futures make. In the order of streams futures
  /// are complete at once, so their callbacks run where the call was made, at all ranks.
  Origin origin_of_callbacks() const noexcept;
  /// Whether the task is a collective, which all ranks call in the same order.
  bool is_collective() const noexcept;
  /// Whether streams wait for the task.
  bool blocks_streams() const noexcept { return blocks_streams_.load(std::memory_order_relaxed); }
  bool is_settled() const noexcept {
    return state_.load(std::memory_order_acquire) >= State::settled;
  }
  /// Whether it begins only when another task has ended.
  bool follows_another() const noexcept { return previous_ != nullptr; }
  /// Whether its operations have ended. Makes no progress.
  bool operations_ended() const noexcept { return has_begun() && launch_.ended(); }
  /// Whether its operations have ended, and its copies on a device. Makes no progress.
  bool ended() const noexcept { return operations_ended() && copies_ended(); }
  /// Settles the task if it has ended. Returns whether it is settled: not while another thread
  /// settles it.
  bool settle_if_ended() noexcept;
  /// Settles the task, or waits until another thread has done so. Requires that it has ended.
  void settle() noexcept;
  /// Completes the futures once, which runs their callbacks. A second caller waits until the future
  /// of the values is complete, but not for callbacks. Requires that the task is settled.
  void fulfil() noexcept;
  enum class Waiting : std::uint8_t {
    to_end,          ///< Until the operations have ended, by their own time limits at the latest.
    to_deadline,     ///< Until the deadline.
    beside_program,  ///< The same, as Work::wait_beside_program() does.
  };
  /// Waits in this way until the task has ended. The deadline also limits the wait for copies.
  void wait_for_end(Waiting way, Deadline deadline) noexcept;

  bool isCompleted() override;
  bool isSuccess() const override { return is_settled() && !exception(); }
  int sourceRank() const override;
  Tensors result() override;
  /// Releases Python's lock, and then does the same as wait().
  void synchronize() override;
  /// Throws the task's error. Also throws if `timeout` passes first; the task then continues. In
  /// the order of streams, without a time-out: lets the current stream wait, and throws only if the
  /// task has failed already.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return facts_.sequence; }

 private:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  ///   waiting ──► copy_due ──► copying ──► copied ──► settling ──► settled ──► fulfilled
  ///      │                                   ▲ ▲
  ///      └──── nothing to copy on a stream ──┘ └── from here on, whoever finds that it has ended
  ///
  /// Whether the operations have ended is not part of the state: they say it themselves.
  enum class State : std::uint8_t {
    /// The task has no operations yet. begin() changes this state, or the end of the step before;
    /// if that has failed, the task is settled at once.
    waiting,
    /// Copies to the caller's tensors have to be enqueued on a stream of the device: by start() in
    /// the order of streams, otherwise by the first thread that finds that the operations have
    /// ended.
    copy_due,
    copying,  ///< A thread enqueues these copies.
    /// The stream has the copies, or enqueuing them has failed, or there are none. Any thread that
    /// finds that the task has ended may settle it: in wait() or isCompleted(), a server, or a
    /// later call on the group.
    copied,
    settling,  ///< A thread makes the copies on the CPU, begins the next step and releases tensors.
    /// The outcome is known. The same threads fulfil the task, except a later call, so that
    /// callbacks never run within unrelated calls.
    settled,
    fulfilled,  ///< The futures are complete, or are being completed.
  };

  void start(Launch launch);
  /// Called at the end of the step before, with its error.
  void follow(std::exception_ptr error, const std::function<Launch()>& start_operations) noexcept;
  /// Settles the task unless a thread does so or has done so. Returns whether it is settled. With
  /// an error, the task fails with it.
  bool try_to_settle(std::exception_ptr error = nullptr) noexcept;
  /// Does what is left to do, in `settling`. Returns tensors that are needed no longer.
  Tensors conclude(std::exception_ptr error) noexcept;
  /// The first failure of its operations, and of those of its parts and earlier steps.
  Status outcome() const;
  bool has_begun() const noexcept {
    return state_.load(std::memory_order_acquire) != State::waiting;
  }
  /// Whether streams shall wait for the task instead of threads.
  bool belongs_in_stream_order() const noexcept;
  /// Lets a stream of the task's device wait for the end of the task.
  void block(const DeviceStream& stream) const;
  void block_current_stream();
  /// Removes the tensors that are only kept for the operations.
  Tensors drop_kept() noexcept;
  /// Enqueues the copies on a stream of the device if this is due.
  void copy_back() noexcept;
  /// Whether streams have made the copies, or there are none.
  bool copies_ended() const noexcept;
  /// A future that is complete in the order of streams.
  FuturePtr future_in_stream_order();
  FuturePtr make_future(c10::TypePtr type) const;
  /// A future that is completed with the task, either now or by a server.
  FuturePtr promise(FuturePtr& future, c10::TypePtr type);
  /// Has a server complete the task. False if the caller must do it.
  bool serve(Completion::Kind kind);
  void complete(const FuturePtr& values, const FuturePtr& results) const noexcept;

  const char* const title_;
  const Origin origin_ = OriginScope::current();
  const std::shared_ptr<TaskGroup> group_;
  TaskPtr previous_, next_;  ///< The steps before and after this one.
  std::function<Launch()> start_next_;
  TaskFacts facts_;
  Launch launch_;
  bool is_in_stream_order_ = false;  ///< Whether streams wait for the task. Set by start().
  TaskPlace place_;                  ///< In the list of the group.
  std::atomic<State> state_{State::waiting};
  mutable std::atomic<bool> blocks_streams_{false};
  std::exception_ptr copy_back_error_;  ///< Of enqueuing. Written before the state is `copied`.
  FuturePtr values_, results_;          ///< Made on request. Guarded by Work::mutex_.
};

/// What the tasks of a process group have in common. Keeps tasks, and so their tensors, until they
/// are settled. Thread-safe.
class TaskGroup {
 public:
  /// `note` is appended to the errors of tasks. `job_ranks` has the rank in the job of each rank of
  /// the group.
  TaskGroup(std::string note, std::vector<std::uint32_t> job_ranks);
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup() = default;

  /// Distinguishes the group from all others of this process.
  std::uint64_t id() const noexcept { return id_; }
  const std::string& note() const noexcept { return note_; }
  Servers& servers() const noexcept { return *servers_; }
  /// The rank in the group of a rank of the job; the size of the group if it has no such rank.
  int rank_of(std::uint32_t job_rank) const noexcept;
  /// `place`, which belongs to the task, is set and cleared by add() and remove() alone.
  void add(const TaskPtr& task, TaskPlace& place);
  void remove(TaskPlace& place) noexcept;
  /// Settles tasks that have ended without being waited for. Each new call checks a few, so that
  /// such tasks do not accumulate. Runs no callbacks.
  void sweep(std::size_t checks = kFew) noexcept;
  static constexpr std::size_t kFew = 2, kAll = ~std::size_t{0};
  /// The tasks that are not settled and that `choose` accepts.
  template <typename Choose>
  std::vector<TaskPtr> tasks_where(const Choose& choose) const {
    std::vector<TaskPtr> chosen;
    const std::lock_guard lock(mutex_);
    for (const TaskPtr& task : tasks_) {
      if (choose(*task)) chosen.push_back(task);
    }
    return chosen;
  }
  void note_failure() noexcept { has_failed_.store(true, std::memory_order_relaxed); }
  /// Whether any task has failed.
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }
  /// True at the first call: the group has received a message that is shorter than its tensor.
  bool note_short_message() noexcept { return !has_short_message_.exchange(true); }
  /// Waits until every task is settled. They must have been aborted, or end by themselves.
  void drain() noexcept;

 private:
  const std::uint64_t id_;
  const std::string note_;
  const std::vector<std::uint32_t> job_ranks_;
  const std::shared_ptr<Servers> servers_ = std::make_shared<Servers>();
  mutable std::mutex mutex_;
  std::list<TaskPtr> tasks_;
  std::atomic<std::size_t> listed_{0};  ///< Size of `tasks_`.
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> has_short_message_{false};
};

}  // namespace xylem::pytorch
