// SPDX-License-Identifier: Apache-2.0
//
// Planners: pure functions from a shape and a rank to a schedule. Each algorithm is one file in
// src/planners/ and one line of collectives/CMakeLists.txt; no other code names it.
#pragma once

#include "xylem/collectives/schedule.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::collectives {

/// An algorithm for one collective. It works for any number of ranks, any root and any counts.
struct Planner {
  std::string_view name;  ///< The name that users write: "ring", "recursive_doubling".
  Collective collective;
  std::string_view summary;  ///< One sentence, for `xylem info`.
  /// Pure, so it may be called from several threads at once.
  Schedule (*plan)(const Shape& shape, std::uint32_t rank);
  /// The symmetry of its plans, which verify() checks; null if the planner states none.
  Symmetry (*symmetry)(const Shape& shape) = nullptr;
  bool takes_hosts = false;  ///< Its plans depend on Shape::per_host and Shape::host_sizes.
  /// True if a step moves the blocks of several ranks, which must then have consecutive numbers.
  /// Such plans cannot be renamed (rename.h).
  bool moves_ranges = false;
  /// True if two ranks send each other data, and each overwrites what it has sent in the step that
  /// reads the other's data. If messages are read in the memory of their senders, these two steps
  /// wait for each other, so the messages must be copied.
  bool swaps_data = false;
  /// True if no port is overloaded only as long as all ranks are in the same round, and nothing
  /// keeps them there.
  bool falls_out_of_step = false;
};

/// Every registered planner, in a fixed order.
std::span<const Planner> planners() noexcept;
/// The planners for ranks that access each other's input and output buffers; planners() does not
/// contain them. There is one for each collective, and all have the name "mapped". In their plans,
/// each rank can run its steps one after the other, in list order. An all_to_all must not be in
/// place.
std::span<const Planner> mapped_planners() noexcept;
const Planner& mapped_planner(Collective collective) noexcept;
/// The planner of planners() with this name, or null.
const Planner* find_planner(Collective collective, std::string_view name) noexcept;

}  // namespace xylem::collectives
