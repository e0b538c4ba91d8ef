// SPDX-License-Identifier: Apache-2.0
//
// Runtime: the membership of one rank in a job. It finds the other ranks, connects the transports,
// and drives all operations.
//
// Several Runtimes may live in one process (ranks as threads). A child that is forked while there
// is a Runtime cannot use it, cannot disturb it, and cannot create one of its own. Xylem installs
// no signal handlers (UCX does when it is loaded: see docs/threading.md), its threads block all
// signals, and its descriptors are close-on-exec.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/path_info.h"
#include "xylem/runtime/seat.h"

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

/// A handle to this process's membership in a job. It is empty if it was default-constructed or
/// moved from. The world of an empty handle is an empty communicator, its sizes are 0, its ranks
/// are kNoRank, and shutdown() does nothing.
class XYLEM_API Runtime {
 public:
  /// Joins the job: detects the launcher, finds the other ranks, and connects to them. Collective
  /// over the job; every step has a deadline. Fails with `timed_out`, naming the ranks that did not
  /// join, or with `mismatch`, naming both versions or settings.
  static Result<Runtime> create(const Options& options = {});

  Runtime() noexcept = default;
  /// Wraps a job that was started by other means. Only for Xylem itself and its tests.
  explicit Runtime(std::shared_ptr<runtime::Job> job) noexcept : job_(std::move(job)) {}
  Runtime(Runtime&&) noexcept = default;
  Runtime& operator=(Runtime&& other) noexcept;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  /// Shuts down if shutdown() was not called. Operations that are still pending are aborted, and
  /// the log says so. What happens to a runtime that is not destroyed before the process ends is
  /// described in docs/threading.md.
  ~Runtime();

  /// The communicator of all ranks of the job.
  Communicator world() const noexcept;
  /// Takes a seat in a communicator that this rank will form(). Local. Fails with `exhausted` if
  /// this rank has 1024 communicators, after waiting up to 5 seconds for seats of failed ones. Any
  /// thread may call this.
  Result<Seat> take_seat() const;
  /// Forms a communicator of the members that the formation names, of which this rank is one.
  /// Local: nothing is exchanged here, and each member must call this. If a member has not called
  /// it, the calls of the others on the communicator fail. Fails with `invalid_argument`, naming
  /// what is wrong with the formation. Any thread may call this.
  Result<Communicator> form(Seat seat, const Formation& formation) const;
  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  /// This rank's index among the ranks of the job on its host, and their number.
  std::uint32_t local_rank() const noexcept;
  std::uint32_t local_size() const noexcept;
  /// Whether rank `rank` of the job has left the job or was lost. A communicator that contains it
  /// would fail. False after shutdown().
  bool is_without(std::uint32_t rank) const;
  /// Host name of each rank of the job.
  std::vector<std::string> hosts() const;
  /// How this rank reaches each other rank; empty in a forked child and after shutdown().
  std::vector<PathInfo> paths() const;
  /// What started the job: "torchrun", "openmpi", "mpich", "slurm", "xylem", "options".
  std::string_view launcher() const noexcept;

  /// Leaves the job in good order, after everything that was sent has left this process. Fails with
  /// `busy` while any operation is pending, and if a thread is within a call that it cannot leave,
  /// as after exit() in a signal handler. Fails with `timed_out` if a peer that has not left did
  /// not accept the data sent to it within a minute, or within Options::timeout if that is shorter.
  /// In this case the runtime has shut down, and the rest of the data is lost. Any thread may call
  /// this; a second caller waits for the first.
  Status shutdown();
  /// Leaves all jobs of this process in good order, as exit(0) does (docs/threading.md). Call it
  /// before _exit() in a process that has succeeded, since _exit() runs no handlers. No job can be
  /// used afterwards. Any thread may call this.
  static void leave_all() noexcept;

 private:
  std::shared_ptr<runtime::Job> job_;
};

/// "0.1.0"
XYLEM_API std::string_view version() noexcept;

}  // namespace xylem
