// SPDX-License-Identifier: Apache-2.0
//
// TaskGroup: the list of tasks that are not settled.
#include "task.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

std::atomic<std::uint64_t> groups_made{0};

/// How long drain() waits for copies of operations that have ended. They take longer only on a
/// device that does not work.
constexpr std::chrono::seconds kLongestCopies{5};

}  // namespace

TaskGroup::TaskGroup(std::string note, std::vector<std::uint32_t> job_ranks)
    : id_(++groups_made), note_(std::move(note)), job_ranks_(std::move(job_ranks)) {}

int TaskGroup::rank_of(std::uint32_t job_rank) const noexcept {
  return static_cast<int>(std::ranges::find(job_ranks_, job_rank) - job_ranks_.begin());
}

void TaskGroup::add(const TaskPtr& task, TaskPlace& place) {
  const std::lock_guard lock(mutex_);
  place = tasks_.insert(tasks_.end(), task);
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void TaskGroup::remove(TaskPlace& place) noexcept {
  if (!place) return;
  TaskPtr last;  // Destroyed after the lock is released.
  const std::lock_guard lock(mutex_);
  last = std::move(**place);
  tasks_.erase(*place);
  place.reset();
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void TaskGroup::sweep(std::size_t checks) noexcept {
  if (listed_.load(std::memory_order_relaxed) == 0) return;
  // Their operations have ended. Copies on a device may still have to be enqueued.
  c10::SmallVector<TaskPtr, kFew> ended;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t left = std::min(checks, tasks_.size()); left > 0; --left) {
      if (tasks_.front()->operations_ended()) ended.push_back(tasks_.front());
      // Check other tasks next time, since the tasks in front may never end.
      tasks_.splice(tasks_.end(), tasks_, tasks_.begin());
    }
  }
  for (const TaskPtr& task : ended) task->settle_if_ended();
}

void TaskGroup::drain() noexcept {
  const Deadline copies = Deadline::after(kLongestCopies);
  while (true) {
    TaskPtr task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) return;
      task = tasks_.front();
    }
    task->wait_for_end(Task::Waiting::to_end, copies);
    task->settle();
  }
}

}  // namespace xylem::pytorch
