// SPDX-License-Identifier: Apache-2.0
//
// The kind of memory in which bytes are stored. A user may leave the kind of a buffer `unknown`;
// the call then determines the kind. Every call of a transport states the kind.
#pragma once

#include "xylem/base/api.h"

#include <cstdint>
#include <string_view>

namespace xylem {

enum class MemoryKind : std::uint8_t {
  host,          ///< Ordinary or pinned memory of the process.
  cuda,          ///< Device memory of a CUDA GPU.
  cuda_managed,  ///< CUDA unified memory.
  rocm,          ///< Device memory of a ROCm GPU.
  unknown,       ///< Not stated by the user; the call determines it (Buffer, in runtime/types.h).
};

/// A kind of memory and, for device memory, the device's number in this process (otherwise -1).
struct Memory {
  MemoryKind kind = MemoryKind::host;
  std::int32_t device = -1;

  friend bool operator==(const Memory&, const Memory&) = default;
};

/// The name of the kind: "host", "cuda", …
XYLEM_API std::string_view name(MemoryKind kind) noexcept;

}  // namespace xylem
