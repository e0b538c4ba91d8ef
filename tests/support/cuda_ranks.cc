// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_ranks.h"

#include "xylem/base/check.h"
#include "xylem/execution/device_kernels.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace xylem::test {

namespace cuda = execution::cuda;

namespace {

std::string driver_name() {
  const char* name = std::getenv("CUDA_DRIVER");
  return name == nullptr ? "libcuda.so.1" : name;
}

/// Making a context of a GPU takes up to seconds, so the process retains the contexts that it has
/// made.
void keep_context(const cuda::Driver& driver, int device) {
  CUcontext context = nullptr;
  const Status kept =
      driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  XYLEM_CHECK(kept.is_ok(), kept.message());
}

}  // namespace

unsigned long calls_of_stand_in(const char* function) {
  void* const driver = ::dlopen(driver_name().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  using Count = unsigned long (*)(const char*);
  const auto count = reinterpret_cast<Count>(::dlsym(driver, "fake_cuda_calls"));
  const unsigned long calls = count == nullptr ? 0 : count(function);
  ::dlclose(driver);
  return calls;
}

bool is_stand_in() { return calls_of_stand_in("cuInit") > 0; }

CudaRanks::CudaRanks(std::uint32_t ranks, std::size_t bytes) {
  auto driver = cuda::Driver::open(driver_name());
  XYLEM_CHECK(driver.is_ok(), driver.status().message());
  driver_ = *driver;
  const Status counted = driver_->check(driver_->cuDeviceGetCount(&devices_), "cuDeviceGetCount");
  XYLEM_CHECK(counted.is_ok(), counted.message());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (!is_stand_in()) keep_context(*driver_, kind(rank).device);
    memories_.emplace_back(driver_, kind(rank).device, bytes);
  }
}

bool CudaRanks::fuses_calls() { return std::getenv("TEST_FUSED") != nullptr; }

RankOptions CudaRanks::options(const runtime::Environment& environment) {
  RankOptions options{.size = static_cast<std::uint32_t>(memories_.size()), .transport = "shm"};
  options.devices = [this](std::uint32_t rank) { return of_rank(rank); };
  options.environment = environment;
  return options;
}

std::vector<runtime::ComputeDevice> CudaRanks::of_rank(std::uint32_t rank) {
  execution::CudaOptions options;
  options.device = kind(rank).device;
  if (varies_queues_) options.queues = 1 + rank % 4;
  options.kernel_names = execution::device_kernel_names();
  options.driver = driver_name();
  options.mesh_staging_bytes = mesh_staging_bytes_;
  options.fuses_on_shared_devices = fuses_calls();
  if (most_waiting_streams_) options.most_waiting_streams = *most_waiting_streams_;
  auto compute = execution::make_cuda_compute(options);
  XYLEM_CHECK(compute.is_ok(), compute.status().message());
  return {{kind(rank), *std::move(compute)}};
}

Communicator with_same_memory(const Runtime& runtime) {
  const Communicator world = runtime.world();
  Seat seat = runtime.take_seat().value();
  const std::vector<std::uint32_t> own{seat.number()};
  std::vector<std::uint32_t> seats(world.size());
  const Status gathered = world.all_gather(own, seats).wait();
  XYLEM_CHECK(gathered.is_ok(), gathered.message());
  Formation formation;
  formation.uid = 4711;
  formation.has_same_memory = true;
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    formation.members.push_back({rank, seats[rank]});
  }
  return runtime.form(std::move(seat), formation).value();
}

}  // namespace xylem::test
