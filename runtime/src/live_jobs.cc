// SPDX-License-Identifier: Apache-2.0
#include "live_jobs.h"

namespace xylem::runtime {

LiveJobs& LiveJobs::of_process() {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto& jobs = *new LiveJobs;
  return jobs;
}

Status LiveJobs::check() const {
  return page_.is_forked() && count_ > 0 ? ForkPage::error() : Status();
}

void LiveJobs::add(const Job* job) {
  const std::lock_guard lock(mutex_);
  if (count_ == 0) page_.claim();
  jobs_.insert(job);
  count_ = jobs_.size();
}

void LiveJobs::remove(const Job* job) noexcept {
  const std::lock_guard lock(mutex_);
  jobs_.erase(job);
  count_ = jobs_.size();
}

}  // namespace xylem::runtime
