// SPDX-License-Identifier: Apache-2.0
#include "cuda/allocations.h"

#include "xylem/execution/cuda.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <new>
#include <utility>

namespace xylem::execution::cuda {

Allocations& Allocations::of_process() noexcept {
  // Never destroyed, since the application may free memory after all static objects have been
  // destroyed.
  alignas(Allocations) static std::array<std::byte, sizeof(Allocations)> space;
  static Allocations& allocations = *::new (space.data()) Allocations;
  return allocations;
}

Result<void*> Allocations::add(std::shared_ptr<const Driver> driver,
                               int device,
                               std::uint64_t bytes) {
  Owner owner{std::move(driver)};
  XYLEM_TRY(owner.device, owner.driver->device(device));
  XYLEM_TRY(
      owner.driver->check(owner.driver->cuDevicePrimaryCtxRetain(&owner.context, owner.device),
                          "cuDevicePrimaryCtxRetain"));
  CUdeviceptr address = 0;
  Status why;
  {
    const CurrentContext current(*owner.driver, owner.context);
    why = owner.driver->check(current.result(), "cuCtxPushCurrent");
    if (why) why = owner.driver->check(owner.driver->cuMemAlloc(&address, bytes), "cuMemAlloc");
  }
  if (!why) {
    owner.driver->cuDevicePrimaryCtxRelease(owner.device);
    return failure(why.code(),
                   fmt::format("{} bytes on CUDA device {}: {}", bytes, device, why.message()));
  }
  auto* const memory = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  const Lock lock(mutex_);
  owners_.emplace(memory, std::move(owner));
  return memory;
}

std::optional<Status> Allocations::remove(void* memory) {
  Owner owner;
  {
    const Lock lock(mutex_);
    const auto found = owners_.find(memory);
    if (found == owners_.end()) return std::nullopt;
    owner = std::move(found->second);
    owners_.erase(found);
  }
  // The lock is not held here, since cuMemFree waits for the device.
  Status freed;
  {
    const CurrentContext current(*owner.driver, owner.context);
    freed = owner.driver->check(current.result(), "cuCtxPushCurrent");
    if (freed) {
      const auto address = reinterpret_cast<CUdeviceptr>(memory);
      freed =
          owner.driver->check(owner.driver->blocking(MayWait{}).cuMemFree(address), "cuMemFree");
    }
  }
  owner.driver->cuDevicePrimaryCtxRelease(owner.device);
  return freed;
}

}  // namespace xylem::execution::cuda

namespace xylem::execution {

Result<void*> allocate_on_cuda(std::uint64_t bytes, int device) {
  if (bytes == 0) return failure(Code::invalid_argument, "0 bytes to allocate: ask for 1 or more");
  XYLEM_TRY(auto driver, cuda::Driver::open());
  return cuda::Allocations::of_process().add(std::move(driver), device, bytes);
}

std::optional<Status> free_on_cuda(void* memory) {
  return cuda::Allocations::of_process().remove(memory);
}

}  // namespace xylem::execution
