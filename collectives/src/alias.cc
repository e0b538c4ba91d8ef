// SPDX-License-Identifier: Apache-2.0
//
// The aliases of in-place calls, for each collective.
#include "xylem/collectives/alias.h"

namespace xylem::collectives {

bool allows_in_place(Collective collective) noexcept {
  return collective != Collective::all_to_all && collective != Collective::barrier;
}

std::optional<std::uint32_t> aliased_input(const Shape& shape,
                                           std::uint32_t rank,
                                           std::uint32_t output_chunk) noexcept {
  const bool is_root = rank == shape.root;
  switch (shape.collective) {
    case Collective::all_reduce: return output_chunk;
    case Collective::reduce:
    case Collective::broadcast:
      if (!is_root) return std::nullopt;  // One of the buffers does not exist at this rank.
      return output_chunk;
    case Collective::gather:
      if (!is_root) return std::nullopt;
      [[fallthrough]];
    case Collective::all_gather:
      if (output_chunk != rank) return std::nullopt;
      return 0;
    case Collective::scatter:
      if (!is_root) return std::nullopt;
      [[fallthrough]];
    case Collective::reduce_scatter: return rank;
    case Collective::all_to_all:
    case Collective::barrier: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace xylem::collectives
