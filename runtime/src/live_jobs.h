// SPDX-License-Identifier: Apache-2.0
//
// LiveJobs: the jobs of this process that have not shut down. A child that was forked while its
// parent had such a job may not use Xylem.
#pragma once

#include "process_guard.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>

namespace xylem::runtime {

class Job;

/// Any thread may call any function.
class LiveJobs {
 public:
  /// Never destroyed, since jobs may outlive every other object of the program.
  static LiveJobs& of_process();

  /// Fails in a child that was forked while its parent had a job.
  Status check() const;
  /// The job has started.
  void add(const Job* job);
  /// The job has shut down.
  void remove(const Job* job) noexcept;

 private:
  ForkPage page_;
  std::mutex mutex_;
  std::set<const Job*> jobs_;
  std::atomic<std::size_t> count_{0};  ///< Of `jobs_`, for a child, which must not take the mutex.
};

}  // namespace xylem::runtime
