// SPDX-License-Identifier: Apache-2.0
//
// What the devices of this driver do not have: memory pools. Their attributes say so, and the
// functions return CUDA_ERROR_NOT_SUPPORTED. The functions are here for libraries that link the
// driver, such as UCX, which cannot be loaded if one is missing.
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
