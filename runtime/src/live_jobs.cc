// SPDX-License-Identifier: Apache-2.0
#include "live_jobs.h"

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

namespace xylem::runtime {
namespace {

/// The lowest priority of ELF destructors that is not reserved for the compiler. It makes
/// leave_jobs() run after the destructors of an application into which Xylem is linked statically.
/// If Xylem is libxylem.so, leave_jobs() always runs after them.
constexpr int kAfterProgram = 101;

/// How long LiveJobs::leave() waits at most: for `mutex_` (kLock), and for all jobs together
/// (kAll).
constexpr std::chrono::milliseconds kLock{100};
constexpr std::chrono::seconds kAll{60};

[[gnu::destructor(kAfterProgram)]] void leave_jobs() {
  if (LiveJobs::of_process().ends_well()) LiveJobs::of_process().leave();
}

}  // namespace

bool lock_until(Mutex& mutex, Deadline deadline) noexcept {
  while (!mutex.try_lock()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

LiveJobs& LiveJobs::of_process() {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto& jobs = *new LiveJobs;
  return jobs;
}

Status LiveJobs::check() const {
  return page_.is_forked() && count_ > 0 ? ForkPage::error() : Status();
}

void LiveJobs::add(std::weak_ptr<Leaver> job) {
  const Lock lock(mutex_);
  if (count_ == 0) page_.claim();
  jobs_.push_back(std::move(job));
  count_ = jobs_.size();
  if (std::exchange(is_exit_noted_, true)) return;
  ::on_exit([](int status, void* /*unused*/) { of_process().note_exit(status); }, nullptr);
}

void LiveJobs::remove(const Leaver& job) noexcept {
  const Lock lock(mutex_);
  std::erase_if(jobs_, [&](const auto& weak) {
    const auto other = weak.lock();
    return other == nullptr || other.get() == &job;
  });
  count_ = jobs_.size();
}

void LiveJobs::leave() noexcept try {
  if (count_ == 0 || page_.is_forked()) return;
  std::vector<std::shared_ptr<Leaver>> jobs;
  if (lock_until(mutex_, Deadline::after(kLock))) {
    const Lock lock(mutex_, std::adopt_lock);
    for (const auto& weak : jobs_) {
      if (auto job = weak.lock()) jobs.push_back(std::move(job));
    }
  }
  const Deadline limit = Deadline::after(kAll);
  for (const auto& job : jobs) job->leave_at_exit(limit);
} catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
  // Memory has run out. The peers will detect that this process was lost.
}

}  // namespace xylem::runtime
