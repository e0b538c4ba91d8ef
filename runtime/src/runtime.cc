// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/runtime.h"

#include "groups/seats.h"
#include "groups/split.h"
#include "job.h"
#include "live_jobs.h"
#include "xylem/base/version.h"

namespace xylem {
namespace {

/// Number of ranks below `end` that are on this rank's host.
std::uint32_t count_local(const runtime::Job& job, std::uint32_t end) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t other = 0; other < end; ++other)
    count += job.context().wires->hosts().are_together(job.context().rank(), other) ? 1 : 0;
  return count;
}

}  // namespace

Result<Runtime> Runtime::create(const Options& options) {
  XYLEM_TRY(auto job, runtime::Job::start(options));
  return Runtime(std::move(job));
}

Runtime& Runtime::operator=(Runtime&& other) noexcept {
  if (this != &other) {
    if (job_ != nullptr) (void)job_->shutdown(true);
    job_ = std::move(other.job_);
  }
  return *this;
}

Runtime::~Runtime() {
  if (job_ != nullptr) (void)job_->shutdown(true);
}

Communicator Runtime::world() const noexcept {
  return job_ ? Communicator(job_->world()) : Communicator();
}

Result<Seat> Runtime::take_seat() const {
  if (job_ == nullptr) return failure(Code::invalid_argument, "the runtime handle is empty");
  return job_->take_seat();
}

Result<Communicator> Runtime::form(Seat seat, const Formation& formation) const {
  if (job_ == nullptr) return failure(Code::invalid_argument, "the runtime handle is empty");
  const auto world = job_->world();
  if (world == nullptr) return job_->context().process.check();
  XYLEM_TRY(auto group, runtime::form(*world, std::move(seat), formation));
  return Communicator(std::move(group));
}

std::uint32_t Runtime::rank() const noexcept { return job_ ? job_->context().rank() : kNoRank; }
std::uint32_t Runtime::size() const noexcept { return job_ ? job_->context().size() : 0; }

std::uint32_t Runtime::local_rank() const noexcept {
  return job_ ? count_local(*job_, rank()) : kNoRank;
}

std::uint32_t Runtime::local_size() const noexcept { return job_ ? count_local(*job_, size()) : 0; }

bool Runtime::is_without(std::uint32_t rank) const {
  return job_ != nullptr && rank < size() && job_->is_without(rank);
}

std::vector<std::string> Runtime::hosts() const {
  std::vector<std::string> hosts;
  if (job_ == nullptr) return hosts;
  for (const auto& peer : job_->context().wires->hosts().peers()) hosts.push_back(peer.host);
  return hosts;
}

std::vector<PathInfo> Runtime::paths() const {
  return job_ ? job_->paths() : std::vector<PathInfo>();
}

Counters Runtime::counters() const { return job_ ? job_->counters() : Counters(); }

std::string_view Runtime::launcher() const noexcept {
  return job_ ? std::string_view(job_->context().placement.launcher) : std::string_view();
}

Status Runtime::shutdown() { return job_ == nullptr ? Status::ok() : job_->shutdown(false); }

void Runtime::leave_all() noexcept { runtime::LiveJobs::of_process().leave(); }

std::string_view version() noexcept { return XYLEM_VERSION; }

}  // namespace xylem
