// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_memory.h"

#include "xylem/base/check.h"

#include <utility>

namespace xylem::test {

namespace cuda = execution::cuda;

namespace {

/// Test code does not handle errors of the driver.
void must(const cuda::Driver& driver, CUresult result, const char* function) {
  const Status status = driver.check(result, function);
  XYLEM_CHECK(status.is_ok(), status.message());
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<const cuda::Driver> driver,
                       int device,
                       std::size_t bytes,
                       Kind kind)
    : driver_(std::move(driver)), device_(device), bytes_(bytes) {
  must(*driver_, driver_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  const cuda::CurrentContext current(*driver_, context_);
  must(*driver_,
       kind == Kind::device ? driver_->cuMemAlloc(&base_, bytes_)
                            : driver_->cuMemAllocManaged(&base_, bytes_, CU_MEM_ATTACH_GLOBAL),
       "an allocation");
  must(*driver_, driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
       "cuStreamCreateWithPriority");
}

CudaMemory::~CudaMemory() {
  {
    const cuda::CurrentContext current(*driver_, context_);
    driver_->cuStreamDestroy(stream_);
    driver_->blocking(cuda::MayWait{}).cuMemFree(base_);
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

}  // namespace xylem::test
