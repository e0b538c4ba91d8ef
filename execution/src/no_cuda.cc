// SPDX-License-Identifier: Apache-2.0
//
// The functions of cuda.h, cuda_pointers.h and cuda_stream.h in builds without CUDA.
#include "xylem/execution/cuda.h"
#include "xylem/execution/cuda_pointers.h"
#include "xylem/execution/cuda_stream.h"

namespace xylem::execution {

Result<std::shared_ptr<Compute>> make_cuda_compute(const CudaOptions& /*options*/) {
  return failure(
      Code::unsupported,
      "this Xylem was built without CUDA (XYLEM_WITH_CUDA=OFF) and moves host memory only; copy "
      "it to the host first");
}

Result<void*> allocate_on_cuda(std::uint64_t /*bytes*/, int /*device*/) {
  return failure(Code::unsupported,
                 "this Xylem was built without CUDA (XYLEM_WITH_CUDA=OFF) and allocates host "
                 "memory only");
}

std::optional<Status> free_on_cuda(void* /*memory*/) { return std::nullopt; }

Result<int> count_cuda_devices() {
  return failure(Code::unsupported,
                 "this Xylem was built without CUDA (XYLEM_WITH_CUDA=OFF) and uses no GPUs");
}

Result<std::unique_ptr<CudaStream>> CudaStream::make(int /*device*/) {
  return count_cuda_devices().status();
}

class CudaPointers::Loaded {};

CudaPointers::CudaPointers() = default;
CudaPointers::~CudaPointers() = default;
bool CudaPointers::look_for_driver() noexcept { return false; }
CudaPointer CudaPointers::find(const void* /*address*/) noexcept { return {}; }

}  // namespace xylem::execution
