// SPDX-License-Identifier: Apache-2.0
//
// What the devices of this driver do not have: virtual memory management and memory pools. Their
// attributes say so, and the functions return CUDA_ERROR_NOT_SUPPORTED. The functions are here for
// libraries that link the driver, such as UCX, which cannot be loaded if one is missing.
#include "fakes/cuda_driver/call.h"

namespace xylem::fake_cuda {
namespace {

CUresult not_supported(const char* function) {
  Call call(function, Needs::start);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// The names are NVIDIA's.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemAddressFree(CUdeviceptr, size_t) { return not_supported(__func__); }

CUresult cuMemCreate(CUmemGenericAllocationHandle*,
                     size_t,
                     const CUmemAllocationProp*,
                     unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle) { return not_supported(__func__); }

CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemUnmap(CUdeviceptr, size_t) { return not_supported(__func__); }

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return not_supported(__func__);
}

CUresult cuMemExportToShareableHandle(void*,
                                      CUmemGenericAllocationHandle,
                                      CUmemAllocationHandleType,
                                      unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*,
                                        void*,
                                        CUmemAllocationHandleType) {
  return not_supported(__func__);
}

CUresult cuMemGetAllocationGranularity(size_t*,
                                       const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  return not_supported(__func__);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp*,
                                                CUmemGenericAllocationHandle) {
  return not_supported(__func__);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) {
  return not_supported(__func__);
}

CUresult cuMemPoolDestroy(CUmemoryPool) { return not_supported(__func__); }

CUresult cuMemPoolSetAccess(CUmemoryPool, const CUmemAccessDesc*, size_t) {
  return not_supported(__func__);
}

CUresult cuMemPoolExportToShareableHandle(void*,
                                          CUmemoryPool,
                                          CUmemAllocationHandleType,
                                          unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool*,
                                            void*,
                                            CUmemAllocationHandleType,
                                            unsigned long long) {
  return not_supported(__func__);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
  return not_supported(__func__);
}

CUresult cuMemPoolImportPointer(CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*) {
  return not_supported(__func__);
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
