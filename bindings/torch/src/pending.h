// SPDX-License-Identifier: Apache-2.0
//
// Pending: the tasks of a group that go on, and the threads that fulfil those whose futures
// somebody has asked for.
//
//   getFuture() ──serve()──► a server's queue ──(ended, in its order)──► settled and fulfilled:
//                                                                        callbacks run
//
// A group has two servers of its own, each with a thread from the first future on: one of
// collectives, which it fulfils in the order in which their futures were asked for, so that
// callbacks that call others call them in one order on all ranks; and one of messages, which it
// fulfils as they end. What a callback calls goes to a server that it borrows while it runs,
// whatever thread that is: so it may wait for that. What is left there when it has returned, and
// those that run in one turn with it, goes to the group's own, to where it was asked for, once no
// callbacks run there.
#pragma once

#include "task.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace xylem::pytorch {

/// Any thread. It keeps tasks, and so their tensors, until they are settled.
class Pending : public std::enable_shared_from_this<Pending> {
  struct Server;
  struct Borrowed;

 public:
  /// `note` is for the errors of tasks.
  explicit Pending(std::string note) : note_(std::move(note)) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() = default;

  const std::string& note() const noexcept { return note_; }
  void add(const TaskPtr& task);
  void remove(Task& task) noexcept;
  /// Settles some of the tasks that have ended without anybody asking, and runs no callbacks.
  void sweep() noexcept;
  /// Operations that go on of tasks of these types.
  template <typename Choose>
  Works works_of(const Choose& choose) const {
    Works works;
    const std::lock_guard lock(mutex_);
    for (const TaskPtr& task : tasks_) {
      if (choose(task->name().type)) works.append(task->works().begin(), task->works().end());
    }
    return works;
  }
  void note_failure() noexcept { has_failed_.store(true, std::memory_order_relaxed); }
  /// Whether a task has failed.
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }
  /// Has the task fulfilled once it has ended. False where it has been settled and nothing is
  /// before it, and after stop(): the caller fulfils it. Throws std::system_error where there can
  /// be no more threads.
  bool serve(const TaskPtr& task);
  /// Waits until every task has been settled; they have been aborted, or end by themselves.
  void drain() noexcept;
  /// Ends the threads, which fulfil what they were given. After drain(). Not with Python's lock.
  void stop() noexcept;

  /// Lives wherever callbacks run. What these borrow goes back with the outermost of a thread.
  class Callbacks {
   public:
    Callbacks() noexcept;
    Callbacks(const Callbacks&) = delete;
    Callbacks& operator=(const Callbacks&) = delete;
    ~Callbacks();
    /// Whether some run on this thread: it must not wait for another that runs some.
    static bool are_running() noexcept;

   private:
    friend class Pending;
    /// What callbacks on this thread have borrowed, from any group; empty in nested scopes.
    mutable std::vector<Borrowed> borrowed_;
  };

 private:
  struct Promised {
    std::uint64_t number = 0;  ///< In the order of serve().
    TaskPtr task;
  };
  struct Server {
    std::vector<Promised> queue;  ///< By number; some may have been fulfilled by others.
    bool is_borrowed = false;     ///< By a callback that is running.
    bool is_fulfilling = false;   ///< Callbacks of its own may be running.
    bool is_idle = true;
    std::thread thread;
  };

  Server& make_server();
  /// The group's own for such a task; none before the first.
  Server*& home_of(const Task& task) noexcept;
  /// For calls of the callbacks that run on this thread, if they have one yet.
  Server* borrowed_server() const noexcept;
  /// While callbacks run on this thread.
  Server& borrow();
  void give_back(Server& server) noexcept;
  void send_home(Server& server) noexcept;
  void run(Server& own);
  /// Whether a collective that is added would be the next.
  static bool is_through(const Server& server) noexcept;
  static std::vector<TaskPtr> take_ended(Server& server);

  /// Of this thread; null while it runs no callbacks.
  static thread_local const Callbacks* outermost;

  const std::string note_;
  mutable std::mutex mutex_;
  std::list<TaskPtr> tasks_;
  std::atomic<std::size_t> listed_{0};  ///< How many these are.
  std::condition_variable changed_;
  std::list<Server> servers_;
  Server* of_collectives_ = nullptr;
  Server* of_messages_ = nullptr;
  std::uint64_t promised_ = 0;
  bool stop_ = false;
  std::atomic<bool> has_failed_{false};
};

}  // namespace xylem::pytorch
