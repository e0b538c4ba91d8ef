// SPDX-License-Identifier: Apache-2.0
//
// A posted receive, for transports that match messages with receives themselves.
#pragma once

#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport {

struct Receive {
  Tag tag = 0;
  Tag mask = kExactMatch;
  Region target;
  Operation* operation = nullptr;
  Tag* sender_tag = nullptr;
  bool wants_view = false;  ///< The receiver accepts a view instead of a copy.
  Memory reader{};          ///< The device of this memory reads the view; by default the CPU.

  /// True if the receiver accepts a view of memory that the CPU can access.
  bool wants_host_view() const noexcept { return wants_view && reader.kind == MemoryKind::host; }

  bool fits(std::uint64_t bytes) const noexcept { return bytes <= target.bytes; }
};

inline bool tag_matches(Tag tag, Tag wanted, Tag mask) noexcept {
  return ((tag ^ wanted) & mask) == 0;
}

}  // namespace xylem::transport
