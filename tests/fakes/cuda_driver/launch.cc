// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/launch.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace xylem::fake_cuda {
namespace {

/// The kernel that this thread runs. It caches the allocations that the kernel has accessed, so
/// that few accesses lock the mutex.
struct Running {
  Device& device;
  std::array<AllocationPtr, 8> reached;
  std::size_t next = 0;
  bool has_failed = false;
};
thread_local Running* running = nullptr;

void* reach(const void* address) {
  Running& kernel = *running;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const AllocationPtr& allocation : kernel.reached) {
    if (allocation != nullptr && allocation->contains(at)) return allocation->view(address);
  }
  AllocationPtr allocation;
  {
    const std::lock_guard lock(driver_mutex());
    allocation = kernel.device.driver.memory.find(address);
    if (allocation == nullptr || !allocation->is_ready || !may_access(kernel.device, *allocation) ||
        is_forbidden(kernel.device.driver, *allocation)) {
      kernel.has_failed = true;
      return kernel.device.driver.scratch();
    }
  }
  void* view = allocation->view(address);
  kernel.reached[kernel.next++ % kernel.reached.size()] = std::move(allocation);
  return view;
}

void run_block(const Launch& launch, std::uint64_t block) {
  std::vector<std::byte> parameters = launch.parameters;
  void* pointers[] = {parameters.data()};
  execution::cuda::HostPlace place;
  place.stride = launch.blocks * launch.threads;
  place.reach = reach;
  for (std::uint64_t thread = 0; thread < launch.threads; ++thread) {
    place.first = block * launch.threads + thread;
    launch.kernel->run(pointers, place);
  }
}

}  // namespace

void run_kernel(const Launch& launch, const Run& run) {
  const Watched watched(run, launch.kernel->name, 0);
  Running kernel{run.device(), {}};
  running = &kernel;
  std::vector<std::uint64_t> order(launch.blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), run.random());
  for (const std::uint64_t block : order) {
    if (kernel.has_failed || run.is_aborted()) break;
    run_block(launch, block);
  }
  running = nullptr;
  if (kernel.has_failed) run.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace xylem::fake_cuda
