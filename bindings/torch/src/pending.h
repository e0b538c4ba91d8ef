// SPDX-License-Identifier: Apache-2.0
//
// Pending: the tasks of a group that have not ended, and the threads that complete the futures of
// tasks.
//
//   getFuture() ──serve()──► a server's queue ──(ended, in its order)──► settled and fulfilled:
//                                                                        callbacks run
//
// A *server* is a thread with a queue of tasks whose futures it completes. A group has one server
// for collectives and one for messages; each is made with the first future that it serves. The
// server of collectives completes futures in the order in which they were requested. So callbacks
// that call further collectives run in the same order on all ranks. The server of messages
// completes futures as the messages end. While a callback runs, on any thread, the futures of the
// calls that it makes go to another server, which the callback borrows. So the callback may wait
// for these futures. When the outermost callback of a thread has returned, the tasks in the queue
// of the borrowed server move to the group's own servers, into the order of their requests. If the
// borrowed server is running callbacks at that time, the tasks move when these callbacks have
// returned.
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
  /// `note` is appended to the errors of tasks. `job_ranks[r]` is the rank in the job of rank r of
  /// the group.
  Pending(std::string note, std::vector<std::uint32_t> job_ranks)
      : id_(++made), note_(std::move(note)), job_ranks_(std::move(job_ranks)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() = default;

  /// A number that identifies the group in this process.
  std::uint64_t id() const noexcept { return id_; }
  const std::string& note() const noexcept { return note_; }
  /// The rank in the group of a rank of the job; the size of the group if that rank is not a
  /// member.
  int rank_of(std::uint32_t job_rank) const noexcept;
  void add(const TaskPtr& task);
  void remove(Task& task) noexcept;
  /// Settles tasks that have ended, so that tasks for which no thread waits do not accumulate.
  /// Checks at most `looks` tasks. Runs no callbacks.
  void sweep(std::size_t looks = kFew) noexcept;
  /// Numbers of tasks to check: each new call checks kFew, a barrier kAll.
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
  /// Records that the group has received a message that is shorter than its tensor. True at the
  /// first call.
  bool note_short_message() noexcept { return !has_short_message_.exchange(true); }
  /// Adds the task to the queue of a server, which fulfils it after it has ended. Returns false,
  /// without adding the task, if the task is settled and need not wait for an earlier collective,
  /// or after stop(). Then the caller must complete the futures of the task. Throws
  /// std::system_error if no more threads can be made.
  bool serve(const TaskPtr& task);
  /// Waits until every task is settled. Precondition: each task has been aborted or ends by itself.
  void drain() noexcept;
  /// Ends the threads of the servers after they have fulfilled their tasks. Call after drain(), and
  /// without the GIL.
  void stop() noexcept;

  /// While an object of this class exists, calls that its thread makes have the given origin.
  /// Python futures construct one around each of their callbacks (futures.h).
  class InCallback {
   public:
    explicit InCallback(Origin origin) noexcept : before_(std::exchange(origin_here, origin)) {}
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
    ~InCallback() { origin_here = before_; }

   private:
    const Origin before_;
  };
  /// The origin of the calls that this thread makes.
  static Origin origin() noexcept { return origin_here; }
  /// The label (Communicator::labelled()) of collectives that this thread calls on this group. It
  /// is Origin::kUnknown in a callback of another group, since the calls of the other group may
  /// have different numbers at different ranks.
  std::uint64_t label_of_calls() const noexcept {
    const bool is_ours = origin_here.is_program() || origin_here.group == id_;
    return is_ours ? origin_here.label : Origin::kUnknown;
  }

  /// Exists while its thread completes futures, which runs callbacks. These include callbacks that
  /// no InCallback surrounds, such as those of collect_all(); their origin is Origin::kUnknown.
  /// When the outermost Callbacks object of a thread is destroyed, the servers that callbacks of
  /// the thread have borrowed are returned.
  class Callbacks {
   public:
    Callbacks() noexcept;
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;
    ~Callbacks();
    /// Whether this thread runs callbacks. If so, it must not wait for another thread that runs
    /// callbacks, since the other thread may wait for this one.
    static bool are_running() noexcept;

   private:
    friend class Pending;
    InCallback within_;
    /// Servers that callbacks on this thread have borrowed, from any group. Only the outermost
    /// object of a thread uses this list.
    mutable std::vector<Borrowed> borrowed_;
  };

 private:
  struct QueuedTask {
    std::uint64_t number = 0;  ///< Number of the serve() call.
    TaskPtr task;
  };
  struct Server {
    /// In the order of the numbers. Other threads may already have fulfilled some of the tasks.
    std::vector<QueuedTask> queue;
    bool is_borrowed = false;  ///< True while a running callback has borrowed the server.
    /// True while the server may be running callbacks of its tasks.
    bool is_completing_futures = false;
    bool is_idle = true;
    std::thread thread;
  };

  Server& make_server() XYLEM_LOCKING(requires_capability(mutex_));
  /// The group's own server for tasks of this kind (collective or message); null before the first
  /// task of that kind.
  Server*& own_server_of(const Task& task) noexcept XYLEM_LOCKING(requires_capability(mutex_));
  /// The server of this group that callbacks of this thread have borrowed; null if there is none.
  Server* borrowed_server() const noexcept;
  /// Borrows an idle or a new server for the callbacks of this thread. Requires that callbacks run
  /// on this thread.
  Server& borrow() XYLEM_LOCKING(requires_capability(mutex_));
  void give_back(Server& server) noexcept XYLEM_LOCKING(locks_excluded(mutex_));
  void return_to_group(Server& server) noexcept XYLEM_LOCKING(requires_capability(mutex_));
  void run(Server& own);
  /// Waits until the first collective in the server's queue has ended, or the first message if
  /// there is no collective, but only for a short time: about `look` if messages are queued.
  /// Returns false if the queue is empty and stop() was called.
  bool await_task(Server& own, std::chrono::microseconds& look);
  void complete_futures(Server& own, std::vector<TaskPtr> ended);
  /// Whether the server neither runs callbacks nor has a collective in its queue. If so, a further
  /// collective would be the next to be fulfilled.
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
