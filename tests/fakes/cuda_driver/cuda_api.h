// SPDX-License-Identifier: Apache-2.0
//
// The functions of the driver as cuda.h declares them, but exported from the library. Sources
// define them within extern "C", so a wrong signature does not compile. The macros of cuda.h map
// plain names to versioned names: `cuMemAlloc` defines cuMemAlloc_v2.
#pragma once

#pragma GCC visibility push(default)
#include "fakes/cuda_driver/fake_cuda.h"

#include <cuda.h>

extern "C" {
// An older signature, which cuda.h does not declare.
CUresult cuStreamGetCaptureInfo_v2(CUstream stream,  // NOLINT(readability-identifier-naming)
                                   CUstreamCaptureStatus* status,
                                   cuuint64_t* id,
                                   CUgraph* graph,
                                   const CUgraphNode** after,
                                   size_t* count);
}
#pragma GCC visibility pop

namespace xylem::fake_cuda {

inline const void* pointer(CUdeviceptr address) noexcept {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace xylem::fake_cuda
