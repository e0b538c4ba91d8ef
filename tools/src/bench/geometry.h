// SPDX-License-Identifier: Apache-2.0
//
// Geometry: the sizes of one call and, for one rank, the origin of each piece of the right result.
// It turns "all_gather of 64 KiB on 4 ranks" into element counts and a list of regions to check.
#pragma once

#include "bench/operation.h"
#include "xylem/base/quantity.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace xylem::tools {

/// A region of the output and its right content. The `count` elements that begin at `at` must equal
/// the elements that begin at `from` in the input of rank `source`. If `source` is not set, they
/// must equal the elements that begin at `from` in the reduction of all inputs.
struct Region {
  std::size_t at = 0;
  std::size_t count = 0;
  std::optional<std::uint32_t> source;
  std::size_t from = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

/// Counts are in elements. A buffer that a rank does not use has the count 0.
struct Geometry {
  std::size_t count = 0;  ///< The count of the call: one rank's share, if the data has parts.
  Bytes size;             ///< The size that the row shows and that bandwidths are computed from.
  std::size_t input = 0;
  std::size_t output = 0;
  /// In place, the smaller buffer begins at this element of the larger one.
  std::size_t in_place_at = 0;
  /// The sizes of the parts, for operations on uneven parts. All ranks have the same lists, except
  /// for all_to_all_v.
  std::vector<std::uint64_t> send_counts, receive_counts;
  std::vector<Region> result;
};

/// How operations on uneven parts divide their elements.
enum class Parts : std::uint8_t {
  rising,  ///< In the proportions 1 : 2 : … : n.
  even,    ///< Equally, as operations on equal parts do.
  one,     ///< The first rank gets nine tenths, the second the rest, the others nothing.
};
inline constexpr std::array<std::string_view, 3> kPartsNames{"rising", "even", "one"};

struct GeometryQuery {
  Operation operation = Operation::all_reduce;
  /// The requested size. geometry() rounds it down to whole elements and, if the data has parts, to
  /// equal parts. Each part has at least one element.
  Bytes size;
  std::size_t element_size = 4;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  Parts parts = Parts::rising;
};

Geometry geometry(const GeometryQuery& query);

}  // namespace xylem::tools
