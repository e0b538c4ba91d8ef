// SPDX-License-Identifier: Apache-2.0
//
// Pending: the tasks of a group that have not ended, and the threads that complete the futures of
// tasks.
//
//   getFuture() ──serve()──► a server's queue ──(ended, in its order)──► settled and fulfilled:
//                                                                        callbacks run
//
// A group has two servers, each with a thread once it has its first future. One serves collectives,
// in the order in which their futures were requested, so that callbacks that call further
// collectives do so in the same order on all ranks. The other serves messages, as they end. While a
// callback runs, on any thread, the futures of its own calls go to another server, which it
// borrows, so the callback may wait for them. When the outermost callback of a thread has returned,
// futures left on the borrowed server move to the group's own servers, at the position at which
// they were requested. If the borrowed server is then running callbacks, they move after these.
#pragma once

#include "task.h"
#include "xylem/base/mutex.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::pytorch {

/// Thread-safe. Keeps each task, and so its tensors, until the task is settled (task.h).
class Pending : public std::enable_shared_from_this<Pending> {
  struct Server;
  struct Borrowed;

 public:
  /// `note` is appended to the errors of tasks. `job_ranks` has the rank in the job of each rank of
  /// the group.
  Pending(std::string note, std::vector<std::uint32_t> job_ranks)
      : id_(++made), note_(std::move(note)), job_ranks_(std::move(job_ranks)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() = default;

  /// A number that identifies the group in this process.
  std::uint64_t id() const noexcept { return id_; }
  const std::string& note() const noexcept { return note_; }
  /// The rank in the group of a rank of the job; the size of the group if it has no such rank.
  int rank_of(std::uint32_t job_rank) const noexcept;
  void add(const TaskPtr& task);
  void remove(Task& task) noexcept;
  /// Settles tasks that have ended but for which nobody has waited. Checks at most `looks` tasks.
  /// Runs no callbacks.
  void sweep(std::size_t looks = kFew) noexcept;
  /// Each new call checks a few tasks, so that tasks for which nobody waits do not accumulate.
  static constexpr std::size_t kFew = 2, kAll = ~std::size_t{0};
  /// The operations of pending tasks that `choose` accepts.
  template <typename Choose>
  Works works_of(const Choose& choose) const {
    Works works;
    const Lock lock(mutex_);
    for (const TaskPtr& task : tasks_) {
      if (choose(*task)) works.append(task->works().begin(), task->works().end());
    }
    return works;
  }
  void note_failure() noexcept { has_failed_.store(true, std::memory_order_relaxed); }
  /// Whether any task has failed.
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }
  /// True at the first call: the group has received a message that is shorter than its tensor.
  bool note_short_message() noexcept { return !has_short_message_.exchange(true); }
  /// Arranges that the task is fulfilled after it has ended. Returns false if the task is settled
  /// and no earlier one is waiting, and after stop(): the caller must then complete its futures.
  /// Throws std::system_error if no more threads can be made.
  bool serve(const TaskPtr& task);
  /// Waits until every task is settled. They must have been aborted, or end by themselves.
  void drain() noexcept;
  /// Ends the threads after they have fulfilled their tasks. Call after drain(), and without
  /// Python's lock.
  void stop() noexcept;

  /// Exists while a callback may run on this thread, and holds the origin of the callback's calls.
  /// The futures of Python make one for each of their callbacks (futures.h).
  class InCallback {
   public:
    explicit InCallback(Origin origin) noexcept : before_(std::exchange(origin_here, origin)) {}
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
    ~InCallback() { origin_here = before_; }

   private:
    const Origin before_;
  };
  /// The origin of calls that are made on this thread now.
  static Origin origin() noexcept { return origin_here; }
  /// The label of collectives that are called on this group now, on this thread
  /// (Communicator::labelled()). It is Origin::kUnknown in a callback of another group, since that
  /// group may number its calls differently at other ranks.
  std::uint64_t label_of_calls() const noexcept {
    const bool is_ours = origin_here.is_program() || origin_here.group == id_;
    return is_ours ? origin_here.label : Origin::kUnknown;
  }

  /// Exists while callbacks run, including those whose call only torch knows, such as those of
  /// collect_all(). Servers borrowed by callbacks are returned when the outermost Callbacks object
  /// of a thread is destroyed.
  class Callbacks {
   public:
    Callbacks() noexcept;
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;
    ~Callbacks();
    /// Whether callbacks run on this thread. Such a thread must not wait for another that runs
    /// callbacks.
    static bool are_running() noexcept;

   private:
    friend class Pending;
    InCallback within_;
    /// Servers that callbacks on this thread have borrowed, from any group; empty in nested scopes.
    mutable std::vector<Borrowed> borrowed_;
  };

 private:
  struct QueuedTask {
    std::uint64_t number = 0;  ///< Number of the serve() call.
    TaskPtr task;
  };
  struct Server {
    /// In the order of the numbers. Some tasks may have been fulfilled by other threads.
    std::vector<QueuedTask> queue;
    bool is_borrowed = false;  ///< True while a running callback has borrowed the server.
    bool is_completing_futures =
        false;  ///< True while the server may be running callbacks of its tasks.
    bool is_idle = true;
    std::thread thread;
  };

  Server& make_server() XYLEM_LOCKING(requires_capability(mutex_));
  /// The group's own server for tasks of this kind (collective or message); null before the first
  /// task of that kind.
  Server*& own_server_of(const Task& task) noexcept XYLEM_LOCKING(requires_capability(mutex_));
  /// The server for calls made by callbacks of this thread, if they have one yet.
  Server* borrowed_server() const noexcept;
  /// Returns the server that callbacks of this thread use, and borrows one if they have none yet.
  /// Requires that callbacks run on this thread.
  Server& borrow() XYLEM_LOCKING(requires_capability(mutex_));
  void give_back(Server& server) noexcept XYLEM_LOCKING(locks_excluded(mutex_));
  void return_to_group(Server& server) noexcept XYLEM_LOCKING(requires_capability(mutex_));
  void run(Server& own);
  /// Waits until a task of the server has ended, or for about as long as `look`. False if it has no
  /// task and stop() was called.
  bool await_task(Server& own, std::chrono::microseconds& look);
  void complete_futures(Server& own, std::vector<TaskPtr> ended);
  /// Whether a collective that is added now would be the next to be fulfilled.
  bool is_through(const Server& server) const noexcept XYLEM_LOCKING(requires_capability(mutex_));
  std::vector<TaskPtr> take_ended(Server& server) XYLEM_LOCKING(requires_capability(mutex_));

  /// The outermost Callbacks object of this thread; null while it runs no callbacks.
  static thread_local const Callbacks* outermost;
  static thread_local Origin origin_here;

  static std::atomic<std::uint64_t> made;

  const std::uint64_t id_;
  const std::string note_;
  const std::vector<std::uint32_t> job_ranks_;
  mutable Mutex mutex_;
  std::list<TaskPtr> tasks_ XYLEM_LOCKING(guarded_by(mutex_));
  std::atomic<std::size_t> listed_{0};  ///< Size of `tasks_`.
  Condition changed_;
  std::list<Server> servers_ XYLEM_LOCKING(guarded_by(mutex_));
  Server* of_collectives_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;
  Server* of_messages_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;
  std::uint64_t promised_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
  bool stop_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> has_short_message_{false};
};

}  // namespace xylem::pytorch
