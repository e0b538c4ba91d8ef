// SPDX-License-Identifier: Apache-2.0
#include "progress/background.h"

#include "bootstrap/service_thread.h"

#include <sys/prctl.h>

#include <utility>

namespace xylem::runtime {

Status Background::post(Task task) {
  const Lock lock(mutex_);
  if (is_stopped_) return {};
  if (!thread_.joinable()) {
    XYLEM_TRY(thread_, start_service_thread("work in the background", [this] { run(); }));
  }
  tasks_.push_back(std::move(task));
  changed_.notify_one();
  return {};
}

void Background::run() {
  ::prctl(PR_SET_NAME, "xylem work");
  for (;;) {
    Task task;
    {
      const Lock lock(mutex_);
      while (tasks_.empty() && !is_stopped_) changed_.wait(mutex_);
      if (is_stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Background::close() noexcept {
  const Lock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_one();
}

void Background::stop() noexcept {
  std::deque<Task> dropped;  // Destroyed without the mutex.
  std::thread thread;
  {
    const Lock lock(mutex_);
    is_stopped_ = true;
    dropped.swap(tasks_);
    thread.swap(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
}

}  // namespace xylem::runtime
