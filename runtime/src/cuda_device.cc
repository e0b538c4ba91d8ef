// SPDX-License-Identifier: Apache-2.0
#include "cuda_device.h"

#include "cuda/cuda_compute.h"
#include "cuda/device_kernels.h"
#include "device_kernels.h"
#include "device_maker.h"

#include <utility>

namespace xylem::runtime {

namespace cuda = execution::cuda;

Result<ComputeDevice> make_cuda_device(std::shared_ptr<const cuda::Driver> driver,
                                       const Memory& memory,
                                       std::uint32_t queues) {
  const cuda::CudaComputeOptions options{.device = memory.device,
                                         .queues = queues,
                                         .image = cuda::device_kernels(),
                                         .kernel_names = device_kernel_names()};
  XYLEM_TRY(auto compute, cuda::CudaCompute::make(std::move(driver), options));
  const auto gate_after = [made = compute.get()](void* stream) {
    return made->gate_after(static_cast<CUstream>(stream));
  };
  const auto gate_before = [made = compute.get()](void* stream) {
    return made->gate_before(static_cast<CUstream>(stream));
  };
  return ComputeDevice{memory, std::move(compute), gate_after, gate_before};
}

ComputeDeviceMaker devices_of_machine() {
  return [](const Memory& memory) -> Result<ComputeDevice> {
    if (memory.kind != MemoryKind::cuda) {
      return failure(Code::unsupported,
                     "Xylem works in host and cuda memory only; copy it to one of them first");
    }
    XYLEM_TRY(auto driver, cuda::Driver::open());
    return make_cuda_device(std::move(driver), memory);
  };
}

}  // namespace xylem::runtime
