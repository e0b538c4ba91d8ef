// SPDX-License-Identifier: Apache-2.0
//
// Finds the instruction sets for which the kernels were compiled and which this CPU supports.
// Highway detects them and keeps the choice for all families; nothing is stored here.
#include "xylem/execution/host_kernels.h"

#include <hwy/highway.h>

#include <cstdint>

namespace xylem::execution {

std::vector<std::string_view> kernel_targets() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

bool force_kernel_target(std::string_view target) {
  hwy::SetSupportedTargetsForTest(0);
  bool found = target.empty();
  for (const std::int64_t candidate : hwy::SupportedAndGeneratedTargets()) {
    if (hwy::TargetName(candidate) == target) {
      hwy::SetSupportedTargetsForTest(candidate);
      found = true;
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return found;
}

}  // namespace xylem::execution
