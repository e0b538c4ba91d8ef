// SPDX-License-Identifier: Apache-2.0
//
// Runtime: the membership of one rank in a job. A Runtime finds the other ranks, connects the
// transports, and drives all operations.
//
// Several Runtimes may live in one process (ranks as threads). A child that is forked while its
// parent has a Runtime can neither use nor disturb that Runtime, and cannot create another. Xylem
// installs no signal handlers (UCX does when it is loaded: see docs/threading.md), its threads
// block all signals, and its descriptors are close-on-exec.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"
#include "xylem/runtime/counters.h"
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
/// moved from. For an empty handle, world() returns an empty communicator, size() and local_size()
/// return 0, rank() and local_rank() return kNoRank, and shutdown() does nothing.
class XYLEM_API Runtime {
 public:
  /// Joins the job: detects the launcher, finds the other ranks, and connects to them. Collective
  /// over the job; every step has a deadline. Fails with `timed_out`, naming the ranks that did not
  /// join, or with `mismatch`, naming both versions or settings.
  static Result<Runtime> create(const Options& options = {});

  Runtime() noexcept = default;
  /// Makes a handle to a job that has been started already. Only for Xylem itself and its tests.
  explicit Runtime(std::shared_ptr<runtime::Job> job) noexcept : job_(std::move(job)) {}
  Runtime(Runtime&&) noexcept = default;
  Runtime& operator=(Runtime&& other) noexcept;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  /// Shuts down if shutdown() was not called. Operations that are still pending are aborted, and
  /// the log says so. docs/threading.md describes what happens if a process ends without destroying
  /// its Runtime.
  ~Runtime();

  /// The communicator of all ranks of the job.
  Communicator world() const noexcept;
  /// Takes a seat for a communicator that this rank will form(). Sends nothing. If all seats are in
  /// use, the call waits up to 5 seconds for seats that are about to become free, such as those of
  /// failed communicators, and then fails with `exhausted`. Any thread may call this.
  Result<Seat> take_seat() const;
  /// Forms a communicator of the members in `formation`, which must include this rank. Each member
  /// must call form(). The call sends nothing, so it succeeds even if another member never calls
  /// form(); operations on the communicator then fail. Fails with `invalid_argument`, and names the
  /// error, if the formation is wrong. Any thread may call this.
  Result<Communicator> form(Seat seat, const Formation& formation) const;
  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  /// This rank's index among the job's ranks on this host, and the number of these ranks.
  std::uint32_t local_rank() const noexcept;
  std::uint32_t local_size() const noexcept;
  /// True if the rank with world rank `rank` has left the job or was lost, so that a communicator
  /// with this member fails. False after shutdown().
  bool is_without(std::uint32_t rank) const;
  /// Host name of each rank of the job.
  std::vector<std::string> hosts() const;
  /// How this rank reaches each other rank; empty in a forked child and after shutdown().
  std::vector<PathInfo> paths() const;
  /// What this rank has done since its job began; all 0 in a forked child and after shutdown(). Any
  /// thread may call this. It takes some microseconds.
  Counters counters() const;
  /// What started the job: "torchrun", "openmpi", "mpich", "slurm", "xylem", "options".
  std::string_view launcher() const noexcept;

  /// Waits until all sent data has left this process, and then leaves the job in good order. Fails
  /// with `busy` while any operation is pending. Fails with `busy`, too, if a thread is inside a
  /// call that can never return, as after exit() in a signal handler. Fails with `timed_out` if a
  /// peer that has not left does not accept the data sent to it within a minute, or within
  /// Options::timeout if that is shorter. After `timed_out` the runtime has shut down, and the rest
  /// of the data is lost. Any thread may call this. A second caller blocks until the first call has
  /// returned.
  Status shutdown();
  /// Leaves all jobs of this process in good order, as exit(0) does (docs/threading.md). Call it
  /// before _exit() in a process that has succeeded: _exit() runs no handlers, so the peers would
  /// consider the rank lost. Afterwards no job of the process can be used. Any thread may call
  /// this.
  static void leave_all() noexcept;

 private:
  std::shared_ptr<runtime::Job> job_;
};

/// "0.1.0"
XYLEM_API std::string_view version() noexcept;

}  // namespace xylem
