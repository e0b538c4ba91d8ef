// SPDX-License-Identifier: Apache-2.0
//
// Names of memory kinds.
#include "xylem/base/memory.h"

namespace xylem {

std::string_view name(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::cuda: return "cuda";
    case MemoryKind::cuda_managed: return "cuda_managed";
    case MemoryKind::rocm: return "rocm";
    case MemoryKind::unknown: break;
  }
  return "unknown";
}

}  // namespace xylem
