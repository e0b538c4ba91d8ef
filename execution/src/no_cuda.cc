// SPDX-License-Identifier: Apache-2.0
//
// For builds without CUDA.
#include "xylem/execution/cuda.h"

namespace xylem::execution {

Result<std::shared_ptr<Compute>> make_cuda_compute(const CudaOptions& /*options*/) {
  return failure(
      Code::unsupported,
      "this Xylem was built without CUDA (XYLEM_WITH_CUDA=OFF) and moves host memory only; copy "
      "it to the host first");
}

}  // namespace xylem::execution
