// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_memory.h"

#include "support/driver_function.h"
#include "xylem/base/check.h"

#include <utility>

namespace xylem::test {

namespace cuda = execution::cuda;

namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

/// Rounds up to whole granules of mapped memory.
std::size_t whole_granules(std::size_t bytes, int device) {
  const CUmemAllocationProp properties = properties_of(device);
  std::size_t granule = 0;
  must(XYLEM_DRIVER(cuMemGetAllocationGranularity)(&granule, &properties,
                                                   CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return (bytes + granule - 1) / granule * granule;
}

CUdeviceptr map(std::size_t bytes, int device) {
  const CUmemAllocationProp properties = properties_of(device);
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr start = 0;
  must(XYLEM_DRIVER(cuMemCreate)(&handle, bytes, &properties, 0));
  must(XYLEM_DRIVER(cuMemAddressReserve)(&start, bytes, 0, 0, 0));
  must(XYLEM_DRIVER(cuMemMap)(start, bytes, 0, handle, 0));
  must(XYLEM_DRIVER(cuMemRelease)(handle));
  must(XYLEM_DRIVER(cuMemSetAccess)(start, bytes, &access, 1));
  return start;
}

void unmap(CUdeviceptr start, std::size_t bytes) {
  must(XYLEM_DRIVER(cuMemUnmap)(start, bytes));
  must(XYLEM_DRIVER(cuMemAddressFree)(start, bytes));
}

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<const cuda::Driver> driver,
                       int device,
                       std::size_t bytes,
                       Kind kind)
    : driver_(std::move(driver)),
      device_(device),
      kind_(kind),
      bytes_(kind == Kind::mapped ? whole_granules(bytes, device) : bytes) {
  must(driver_->cuDevicePrimaryCtxRetain(&context_, device_));
  const cuda::CurrentContext current(*driver_, context_);
  switch (kind_) {
    case Kind::device: must(driver_->cuMemAlloc(&base_, bytes_)); break;
    case Kind::managed:
      must(driver_->cuMemAllocManaged(&base_, bytes_, CU_MEM_ATTACH_GLOBAL));
      break;
    case Kind::mapped: base_ = map(bytes_, device_); break;
  }
  must(driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
}

CudaMemory::~CudaMemory() {
  {
    const cuda::CurrentContext current(*driver_, context_);
    driver_->cuStreamDestroy(stream_);
    if (kind_ == Kind::mapped) {
      unmap(base_, bytes_);
    } else {
      driver_->blocking(cuda::MayWait{}).cuMemFree(base_);
    }
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
  must(driver_->cuMemcpyAsync(target, source, bytes, stream_));
  must(driver_->cuStreamSynchronize(stream_));
}

}  // namespace xylem::test
