// SPDX-License-Identifier: Apache-2.0
//
// Runtime: one rank's life in a job. It meets the other ranks, connects transports, and owns
// progress.
//
// Several may live in one process (ranks as threads). A forked child may use nothing of it and
// disturbs no parent. Xylem installs no signal handlers (UCX does when it is loaded: see
// docs/threading.md), its threads take no signals, and its descriptors are close-on-exec.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/path_info.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem {

namespace runtime {
class Job;
}

/// A handle may be empty: by default, and when it was moved from. Its world is an empty
/// communicator, its sizes are 0, its ranks are kNoRank, and shutdown() does nothing.
class XYLEM_API Runtime {
 public:
  /// Starts: detects the launcher, meets the other ranks, connects. Collective over the job; every
  /// step has a deadline. Fails with timed_out naming the ranks that did not come, or mismatch
  /// naming both versions or settings.
  static Result<Runtime> create(const Options& options = {});

  Runtime() noexcept = default;
  /// Of a job that has been started by other means; for Xylem and its tests, as users have none.
  explicit Runtime(std::shared_ptr<runtime::Job> job) noexcept : job_(std::move(job)) {}
  Runtime(Runtime&&) noexcept = default;
  Runtime& operator=(Runtime&& other) noexcept;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  /// shutdown() if that was not called; work still pending is aborted and said so in the log.
  ~Runtime();

  /// The communicator of all ranks of the job.
  Communicator world() const noexcept;
  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  /// Ranks of the job on this host, and this rank's place among them.
  std::uint32_t local_rank() const noexcept;
  std::uint32_t local_size() const noexcept;
  /// Host name of each rank of the job.
  std::vector<std::string> hosts() const;
  /// How this rank reaches each other rank; empty in a forked child and after shutdown().
  std::vector<PathInfo> paths() const;
  /// What started the job: "torchrun", "openmpi", "mpich", "slurm", "xylem", "options".
  std::string_view launcher() const noexcept;

  /// Leaves the job in good order, once what was sent has gone; `busy` while any operation is
  /// pending. `timed_out` if a peer that has not left did not take what was sent to it within a
  /// minute, or Options::timeout: the runtime has shut down, and the rest is lost. Any thread; who
  /// comes second waits for the first.
  Status shutdown();

 private:
  std::shared_ptr<runtime::Job> job_;
};

/// "0.1.0"
XYLEM_API std::string_view version() noexcept;

}  // namespace xylem
