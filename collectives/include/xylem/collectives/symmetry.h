// SPDX-License-Identifier: Apache-2.0
//
// Symmetry of a plan: renamings of ranks and blocks that map it onto itself. A ring of n ranks
// looks the same from each of them; so what one rank does says what all do, and a few schedules
// prove and predict what thousands of ranks execute. A planner states its symmetry, and verify()
// checks it before it relies on it.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::collectives {

/// A commutative group that renames ranks and blocks. Both are numbers in a mixed radix; an element
/// of the group adds to some of the digits, each modulo its radix. It is named by the rank to which
/// it takes rank 0, its `shift`.
///
/// Ranks 0 … representatives − 1 are those below the lowest digit; every rank is the image of
/// exactly one of them, under exactly one element.
class Symmetry {
 public:
  struct Digit {
    std::uint32_t radix = 1;        ///< Number of values, at least 1.
    std::uint32_t rank_stride = 1;  ///< What one more of this digit adds to a rank.
    /// The same for blocks; 0 where blocks stay as they are. Counts for collectives whose blocks
    /// are parts of everybody's data; elsewhere a block is a rank's, and is renamed like it.
    std::uint32_t block_stride = 0;

    friend bool operator==(const Digit&, const Digit&) = default;
  };

  /// Digits from the fastest rank digit to the slowest, without gaps between them, and beside each
  /// other in blocks. Anything else aborts: it is the planner's error.
  explicit Symmetry(std::vector<Digit> digits);

  std::uint32_t ranks() const noexcept { return ranks_; }
  std::uint32_t representatives() const noexcept { return representatives_; }
  std::uint32_t representative(std::uint32_t rank) const noexcept {
    return rank % representatives_;
  }
  /// The element that takes the representative of `rank` to `rank`.
  std::uint32_t shift(std::uint32_t rank) const noexcept { return rank - representative(rank); }
  std::span<const Digit> digits() const noexcept { return digits_; }

  std::uint32_t image(std::uint32_t rank, std::uint32_t shift) const noexcept {
    return move(rank, shift, &Digit::rank_stride);
  }
  std::uint32_t inverse(std::uint32_t shift) const noexcept;
  /// Of a block of this shape. For blocks that are parts: precondition, divides(their number).
  std::uint32_t image_of_block(const Shape& shape, std::uint32_t block, std::uint32_t shift) const;
  /// Whether so many parts fall into whole cycles of every digit.
  bool divides(std::uint32_t parts) const noexcept;

  /// The images of 0, 1, … images.size() − 1: as ranks, or as blocks that are parts.
  void rank_images(std::span<std::uint32_t> images, std::uint32_t shift) const {
    fill(images, shift, &Digit::rank_stride);
  }
  void part_images(std::span<std::uint32_t> images, std::uint32_t shift) const {
    fill(images, shift, &Digit::block_stride);
  }

  /// The part of the group under which the first `ranks` ranks represent all, if there is one: with
  /// the ranks of a host, what takes hosts to hosts.
  std::optional<Symmetry> with_representatives(std::uint32_t ranks) const;

 private:
  using Stride = std::uint32_t Digit::*;
  std::uint32_t move(std::uint32_t number, std::uint32_t shift, Stride stride) const noexcept;
  void fill(std::span<std::uint32_t> images, std::uint32_t shift, Stride stride) const;

  std::vector<Digit> digits_;
  std::uint32_t representatives_ = 1;
  std::uint32_t ranks_ = 1;
};

/// Whether the collective's blocks are parts of everybody's data, in a number that the planner
/// chooses; otherwise each belongs to a rank, or to two.
bool has_free_parts(Collective collective) noexcept;

}  // namespace xylem::collectives
