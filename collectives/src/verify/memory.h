// SPDX-License-Identifier: Apache-2.0
//
// Memory as the verifier models it: one location for each chunk, or for two chunks that share
// memory in an in-place call.
#pragma once

#include "verify/world.h"
#include "xylem/collectives/alias.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem::collectives::verifier {

using Location = std::uint32_t;

class Locations {
 public:
  Locations(const World& world, Aliasing aliasing);

  Aliasing aliasing() const { return aliasing_; }
  Location count() const { return first_.back(); }
  /// The location of the `index`-th chunk of an operand.
  Location of(const Operand& operand, std::uint32_t index) const;
  /// True for a copy of memory onto itself, which the engine skips.
  bool is_void(const Schedule& schedule, const Step& step) const;
  /// "output[2] of rank 3".
  std::string describe(Location location) const;

 private:
  std::uint32_t chunks(std::uint32_t rank, Buffer buffer) const;

  const World& world_;
  Aliasing aliasing_;
  // The first location of the input, the output and the scratch of rank 0, then of rank 1, and so
  // on. The last entry is the number of locations.
  std::vector<Location> first_;
};

/// Checks claim 1 of verify.h. If `locations` are those of an in-place call, checks the part of
/// claim 2 that concerns order. `order` is topological_order().
Status check_order(const World& world, std::span<const Global> order, const Locations& locations);

}  // namespace xylem::collectives::verifier
