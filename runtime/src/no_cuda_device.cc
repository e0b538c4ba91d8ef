// SPDX-License-Identifier: Apache-2.0
//
// For builds without CUDA.
#include "device_maker.h"

namespace xylem::runtime {

ComputeDeviceMaker devices_of_machine() {
  return [](const Memory&) -> Result<ComputeDevice> {
    return failure(Code::unsupported,
                   "this Xylem was built without CUDA (XYLEM_WITH_CUDA=OFF) and moves host memory "
                   "only; copy it "
                   "to the host first");
  };
}

}  // namespace xylem::runtime
