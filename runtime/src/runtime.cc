// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/runtime.h"

#include "job.h"
#include "xylem/base/version.h"

namespace xylem {

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

Communicator Runtime::world() const noexcept { return Communicator(job_->world()); }
std::uint32_t Runtime::rank() const noexcept { return job_->rank(); }
std::uint32_t Runtime::size() const noexcept { return job_->size(); }

std::uint32_t Runtime::local_rank() const noexcept {
  std::uint32_t place = 0;
  for (std::uint32_t other = 0; other < rank(); ++other)
    place += job_->wires().same_host(rank(), other) ? 1 : 0;
  return place;
}

std::uint32_t Runtime::local_size() const noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t other = 0; other < size(); ++other)
    count += job_->wires().same_host(rank(), other) ? 1 : 0;
  return count;
}

std::vector<std::string> Runtime::hosts() const {
  std::vector<std::string> hosts;
  for (const auto& peer : job_->wires().peers()) hosts.push_back(peer.host);
  return hosts;
}

std::vector<PathInfo> Runtime::paths() const { return job_->paths(); }
std::string_view Runtime::launcher() const noexcept { return job_->placement().launcher; }
Status Runtime::shutdown() { return job_ == nullptr ? Status::ok() : job_->shutdown(false); }

std::string_view version() noexcept { return XYLEM_VERSION; }

}  // namespace xylem
