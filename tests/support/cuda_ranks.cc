// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_ranks.h"

#include "runtime/src/device_kernels.h"
#include "xylem/base/check.h"

#include <cstdlib>
#include <string>
#include <utility>

namespace xylem::test {

namespace cuda = execution::cuda;

namespace {

/// Test code has no use for an error of the driver.
void must(const cuda::Driver& driver, CUresult result, const char* function) {
  const Status status = driver.check(result, function);
  XYLEM_CHECK(status.is_ok(), status.message());
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

std::string driver_name() {
  const char* name = std::getenv("CUDA_DRIVER");
  return name == nullptr ? "libcuda.so.1" : name;
}

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<const cuda::Driver> driver, int device, std::size_t bytes)
    : driver_(std::move(driver)), device_(device), bytes_(bytes) {
  must(*driver_, driver_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  const cuda::CurrentContext current(*driver_, context_);
  must(*driver_, driver_->cuMemAlloc(&base_, bytes_), "cuMemAlloc");
  must(*driver_, driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
       "cuStreamCreateWithPriority");
}

CudaMemory::~CudaMemory() {
  {
    const cuda::CurrentContext current(*driver_, context_);
    driver_->cuStreamDestroy(stream_);
    driver_->cuMemFree(base_);
  }
  driver_->cuDevicePrimaryCtxRelease(device_);
}

std::byte* CudaMemory::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  XYLEM_CHECK(bytes <= bytes_ - used_, bytes);
  auto* const place = reinterpret_cast<std::byte*>(base_ + used_);
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

void CudaMemory::write(std::byte* device, const void* source, std::size_t bytes) const {
  copy(address(device), address(source), bytes);
}

void CudaMemory::read(void* target, const std::byte* device, std::size_t bytes) const {
  copy(address(target), address(device), bytes);
}

void CudaMemory::copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) const {
  if (bytes == 0) return;
  const cuda::CurrentContext current(*driver_, context_);
  must(*driver_, driver_->cuMemcpyAsync(target, source, bytes, stream_), "cuMemcpyAsync");
  must(*driver_, driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

CudaRanks::CudaRanks(std::uint32_t ranks, std::size_t bytes) {
  auto driver = cuda::Driver::open(driver_name());
  XYLEM_CHECK(driver.is_ok(), driver.status().message());
  driver_ = *driver;
  must(*driver_, driver_->cuDeviceGetCount(&devices_), "cuDeviceGetCount");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    memories_.emplace_back(driver_, kind(rank).device, bytes);
  }
}

std::vector<runtime::ComputeDevice> CudaRanks::of_rank(std::uint32_t rank) {
  execution::CudaOptions options;
  options.device = kind(rank).device;
  options.queues = 1 + rank % 4;
  options.kernel_names = runtime::device_kernel_names();
  options.driver = driver_name();
  options.mesh_scratch_bytes = mesh_scratch_bytes_;
  auto compute = execution::make_cuda_compute(options);
  XYLEM_CHECK(compute.is_ok(), compute.status().message());
  return {{kind(rank), *std::move(compute)}};
}

}  // namespace xylem::test
