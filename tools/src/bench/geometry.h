// SPDX-License-Identifier: Apache-2.0
//
// Geometry: one call's sizes and, for one rank, where each piece of the right result comes from. It
// turns "all_gather of 64 KiB on 4 ranks" into element counts and a list of regions to check.
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

/// `count` elements of the output from `at` on equal those from `from` on of a rank's input, or of
/// the reduction of all inputs where `source` is not set.
struct Region {
  std::size_t at = 0;
  std::size_t count = 0;
  std::optional<std::uint32_t> source;
  std::size_t from = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

/// Counts are in elements. Buffers that a rank does not have are of count 0.
struct Geometry {
  std::size_t count = 0;  ///< As in the call: one rank's share where the data has parts.
  Bytes size;             ///< What the row shows and bandwidths are computed from.
  std::size_t input = 0;
  std::size_t output = 0;
  /// In place, the smaller buffer begins at this element of the larger.
  std::size_t in_place_at = 0;
  /// Of the operations on uneven parts: alike on all ranks, but all_to_all_v's.
  std::vector<std::uint64_t> send_counts, receive_counts;
  std::vector<Region> result;
};

/// How the operations on uneven parts share their elements out.
enum class Parts : std::uint8_t {
  rising,  ///< In proportions 1 : 2 : … : n.
  even,    ///< Alike, as the operations on equal parts do.
  one,     ///< The first rank has nine tenths, the second the rest, others none.
};
inline constexpr std::array<std::string_view, 3> kPartsNames{"rising", "even", "one"};

struct GeometryQuery {
  Operation operation = Operation::all_reduce;
  Bytes size;  ///< Asked for; rounded down to whole and equal parts, at least one element each.
  std::size_t element_size = 4;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  Parts parts = Parts::rising;
};

Geometry geometry(const GeometryQuery& query);

}  // namespace xylem::tools
