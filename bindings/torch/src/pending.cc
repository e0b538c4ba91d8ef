// SPDX-License-Identifier: Apache-2.0
#include "pending.h"

#include <c10/util/SmallVector.h>
#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace xylem::pytorch {
namespace {

/// How long a server of messages waits for the first task of its queue before it checks the other
/// tasks. While no task ends, the time doubles from kFirstLook up to kLongestLook, since short
/// waits use more CPU time.
constexpr std::chrono::microseconds kFirstLook{200}, kLongestLook{20'000};
/// How long drain() waits for copies of operations that have ended. copies take longer only on
/// a device that has failed.
constexpr std::chrono::seconds kLongestCopies{5};

}  // namespace

struct Pending::Borrowed {
  std::shared_ptr<Pending> group;
  Server* server;
};

thread_local const Pending::Callbacks* Pending::outermost = nullptr;
thread_local Origin Pending::origin_here;
std::atomic<std::uint64_t> Pending::made{0};

Pending::Callbacks::Callbacks() noexcept : within_({Origin::kUnknown, 0}) {
  if (!outermost) outermost = this;
}

Pending::Callbacks::~Callbacks() {
  if (outermost != this) return;
  outermost = nullptr;
  for (const auto& [group, server] : borrowed_) group->give_back(*server);
}

int Pending::rank_of(std::uint32_t job_rank) const noexcept {
  return static_cast<int>(std::ranges::find(job_ranks_, job_rank) - job_ranks_.begin());
}

bool Pending::Callbacks::are_running() noexcept { return outermost != nullptr; }

void Pending::add(const TaskPtr& task) {
  const Lock lock(mutex_);
  task->place_ = tasks_.insert(tasks_.end(), task);
  task->is_listed_.store(true, std::memory_order_relaxed);
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void Pending::remove(Task& task) noexcept {
  if (!task.is_listed_.load(std::memory_order_relaxed)) return;
  TaskPtr last;  // Destroyed after the lock is released.
  const Lock lock(mutex_);
  if (!task.is_listed_.exchange(false, std::memory_order_relaxed)) return;
  last = std::move(*task.place_);
  tasks_.erase(task.place_);
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void Pending::sweep(std::size_t looks) noexcept {
  if (listed_.load(std::memory_order_relaxed) == 0) return;
  // Tasks whose operations have ended. Their copies on a device may still have to be enqueued.
  c10::SmallVector<TaskPtr, kFew> ended;
  {
    const Lock lock(mutex_);
    for (std::size_t left = std::min(looks, tasks_.size()); left > 0; --left) {
      if (tasks_.front()->works_ended()) ended.push_back(tasks_.front());
      // Move the task to the end of the list, so that the next sweep() checks other tasks: this
      // task may never end.
      tasks_.splice(tasks_.end(), tasks_, tasks_.begin());
    }
  }
  for (const TaskPtr& task : ended) task->settle_if_ended();
}

void Pending::drain() noexcept {
  const Deadline limit_of_copies = Deadline::after(kLongestCopies);
  while (true) {
    TaskPtr task;
    {
      const Lock lock(mutex_);
      if (tasks_.empty()) return;
      task = tasks_.front();
    }
    for (const xylem::Work& work : task->works()) (void)work.wait();
    task->wait_for_copies(limit_of_copies);
    task->settle();
    remove(*task);  // If another thread has settled the task, it may not have removed it yet.
  }
}

bool Pending::serve(const TaskPtr& task) {
  {
    const Lock lock(mutex_);
    if (stop_) return false;
    const bool is_callbacks = Callbacks::are_running();
    Server* server = is_callbacks ? borrowed_server() : own_server_of(*task);
    const bool is_next = !server || !task->is_ordered() || is_through(*server);
    if (is_next && task->is_settled()) return false;
    if (!server) server = is_callbacks ? &borrow() : (own_server_of(*task) = &make_server());
    server->queue.push_back({++promised_, task});
  }
  changed_.notify_all();
  return true;
}

void Pending::stop() noexcept {
  std::vector<std::thread> threads;
  {
    const Lock lock(mutex_);
    stop_ = true;
    for (Server& server : servers_) threads.push_back(std::move(server.thread));
  }
  changed_.notify_all();
  for (std::thread& thread : threads) {
    // If the calling thread runs callbacks, joining could deadlock: the calling thread may be one
    // of `threads`, or one of `threads` may be waiting for it.
    if (Callbacks::are_running()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

Pending::Server& Pending::make_server() {
  Server& server = servers_.emplace_back();
  try {
    server.thread = std::thread([self = shared_from_this(), &server] { self->run(server); });
  } catch (...) {
    servers_.pop_back();
    throw;
  }
  return server;
}

Pending::Server*& Pending::own_server_of(const Task& task) noexcept {
  return task.is_ordered() ? of_collectives_ : of_messages_;
}

Pending::Server* Pending::borrowed_server() const noexcept {
  if (!outermost) return nullptr;
  const auto mine = std::ranges::find(outermost->borrowed_, this,
                                      [](const Borrowed& one) { return one.group.get(); });
  return mine == outermost->borrowed_.end() ? nullptr : mine->server;
}

Pending::Server& Pending::borrow() {
  const auto is_spare = [this](const Server& server) XYLEM_LOCKING(requires_capability(mutex_)) {
    return &server != of_collectives_ && &server != of_messages_ && !server.is_borrowed &&
           server.is_idle;
  };
  const auto spare = std::ranges::find_if(servers_, is_spare);
  Server& server = spare == servers_.end() ? make_server() : *spare;
  outermost->borrowed_.push_back({shared_from_this(), &server});
  server.is_borrowed = true;
  return server;
}

void Pending::give_back(Server& server) noexcept {
  const Lock lock(mutex_);
  server.is_borrowed = false;
  // If the server is running callbacks, its thread calls return_to_group() after the callbacks.
  if (!server.is_completing_futures) return_to_group(server);
}

void Pending::return_to_group(Server& server) noexcept {
  if (stop_) return;  // The server's thread continues until its queue is empty.
  for (QueuedTask& promised : std::exchange(server.queue, {})) {
    Server*& home = own_server_of(*promised.task);
    try {
      if (!home) home = &make_server();
    } catch (const std::system_error&) {
      home = &server;  // The task stays here.
    }
    const auto place =
        std::ranges::upper_bound(home->queue, promised.number, {}, &QueuedTask::number);
    home->queue.insert(place, std::move(promised));
  }
  changed_.notify_all();
}

bool Pending::is_through(const Server& server) const noexcept {
  return !server.is_completing_futures &&
         std::ranges::none_of(
             server.queue, [](const QueuedTask& promised) { return promised.task->is_ordered(); });
}

/// Removes ended tasks from the queue and returns them: all messages that have ended, and the
/// collectives that have ended and precede the first collective that has not.
std::vector<TaskPtr> Pending::take_ended(Server& server) {
  bool goes_on = false;
  std::vector<TaskPtr> ended;
  std::vector<QueuedTask> rest;
  for (QueuedTask& promised : server.queue) {
    const bool is_ordered = promised.task->is_ordered();
    if (!(is_ordered && goes_on) && promised.task->ended()) {
      ended.push_back(std::move(promised.task));
    } else {
      goes_on = goes_on || is_ordered;
      rest.push_back(std::move(promised));
    }
  }
  server.queue = std::move(rest);
  return ended;
}

void Pending::run(Server& own) {
  ::prctl(PR_SET_NAME, "xylem futures");
  auto look = kFirstLook;
  while (await_task(own, look)) {
    std::vector<TaskPtr> ended;
    {
      const Lock lock(mutex_);
      ended = take_ended(own);
      own.is_completing_futures = !ended.empty();
    }
    look = ended.empty() ? std::min(2 * look, kLongestLook) : kFirstLook;
    if (!ended.empty()) complete_futures(own, std::move(ended));
  }
}

bool Pending::await_task(Server& own, std::chrono::microseconds& look) {
  TaskPtr awaited;
  auto limit = kLongestLook;
  {
    const Lock lock(mutex_);
    if (own.queue.empty()) {
      own.is_idle = true;
      while (!stop_ && own.queue.empty()) changed_.wait(mutex_);
      if (own.queue.empty()) return false;
      look = kFirstLook;
    }
    // A new server finds its first task without waiting above, so `is_idle` is cleared here in all
    // cases.
    own.is_idle = false;
    // A waiting thread makes progress on all operations of the group, so it is enough to wait for
    // one task.
    const auto is_ordered = [](const QueuedTask& promised) { return promised.task->is_ordered(); };
    const auto ordered = std::ranges::find_if(own.queue, is_ordered);
    awaited = (ordered == own.queue.end() ? own.queue.begin() : ordered)->task;
    // Collectives are fulfilled in order, so the other collectives need not be checked before
    // `awaited` ends. Messages may end at any time.
    if (!std::ranges::all_of(own.queue, is_ordered)) limit = look;
  }
  awaited->wait_for_end(&xylem::Work::wait_beside_program, limit);
  return true;
}

void Pending::complete_futures(Server& own, std::vector<TaskPtr> ended) {
  {
    const Callbacks callbacks;  // Destroying tensors may run Python code, too.
    for (const TaskPtr& task : ended) {
      task->settle();
      task->complete_futures();
    }
    ended.clear();
  }
  const Lock lock(mutex_);
  own.is_completing_futures = false;
  const bool is_home = &own == of_collectives_ || &own == of_messages_;
  if (!is_home && !own.is_borrowed) return_to_group(own);
}

}  // namespace xylem::pytorch
