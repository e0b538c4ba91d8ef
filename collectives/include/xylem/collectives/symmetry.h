// SPDX-License-Identifier: Apache-2.0
//
// Symmetry of a plan: renamings of ranks and blocks that map the plan onto itself. A ring of n
// ranks looks the same from each rank, so the schedule of one rank determines all schedules, and a
// few schedules are enough to prove and predict the plan for thousands of ranks. A planner states
// its symmetry, and verify() checks the statement before it relies on it.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::collectives {

/// A commutative group that renames ranks and blocks. Ranks and blocks are written as numbers in a
/// mixed radix; an element of the group adds to some of the digits, each modulo its radix. An
/// element is named by its `shift`, the rank onto which it maps rank 0.
///
/// The ranks below the stride of the lowest digit are the representatives: 0 … representatives − 1.
/// Every rank is the image of exactly one of them under exactly one element.
class Symmetry {
 public:
  struct Digit {
    std::uint32_t radix = 1;        ///< Number of values, at least 1.
    std::uint32_t rank_stride = 1;  ///< What increasing this digit by one adds to a rank.
    /// What increasing this digit by one adds to a block; 0 if blocks keep their numbers. Used for
    /// collectives whose blocks are parts of the data of all ranks. In other collectives a block
    /// belongs to a rank and is renamed like the rank.
    std::uint32_t block_stride = 0;

    friend bool operator==(const Digit&, const Digit&) = default;
  };

  /// The digits in ascending order of `rank_stride`, which must be `rank_stride` × `radix` of the
  /// digit before. The digits must not overlap in blocks. A violation is a bug of the planner and
  /// aborts the process.
  explicit Symmetry(std::vector<Digit> digits);

  std::uint32_t ranks() const noexcept { return ranks_; }
  std::uint32_t representatives() const noexcept { return representatives_; }
  std::uint32_t representative(std::uint32_t rank) const noexcept {
    return rank % representatives_;
  }
  /// The element that maps the representative of `rank` onto `rank`.
  std::uint32_t shift(std::uint32_t rank) const noexcept { return rank - representative(rank); }
  std::span<const Digit> digits() const noexcept { return digits_; }

  std::uint32_t image(std::uint32_t rank, std::uint32_t shift) const noexcept {
    return move(rank, shift, &Digit::rank_stride);
  }
  std::uint32_t inverse(std::uint32_t shift) const noexcept;
  /// The image of `block` in a collective of this shape. If blocks are parts (has_free_parts()),
  /// divides(number of parts) must hold.
  std::uint32_t image_of_block(const Shape& shape, std::uint32_t block, std::uint32_t shift) const;
  /// Whether `parts` is a multiple of `radix` × `block_stride` of every digit that renames blocks.
  bool divides(std::uint32_t parts) const noexcept;

  /// Write the images of the numbers 0 … images.size() − 1 to `images`. rank_images() takes the
  /// numbers as ranks, and part_images() as blocks that are parts.
  void rank_images(std::span<std::uint32_t> images, std::uint32_t shift) const {
    fill(images, shift, &Digit::rank_stride);
  }
  void part_images(std::span<std::uint32_t> images, std::uint32_t shift) const {
    fill(images, shift, &Digit::block_stride);
  }

  /// The subgroup under which the first `ranks` ranks represent all ranks, if there is one. If
  /// `ranks` is the number of ranks on a host, the subgroup maps hosts to hosts.
  std::optional<Symmetry> with_representatives(std::uint32_t ranks) const;

 private:
  using Stride = std::uint32_t Digit::*;
  std::uint32_t move(std::uint32_t number, std::uint32_t shift, Stride stride) const noexcept;
  void fill(std::span<std::uint32_t> images, std::uint32_t shift, Stride stride) const;

  std::vector<Digit> digits_;
  std::uint32_t representatives_ = 1;
  std::uint32_t ranks_ = 1;
};

/// Whether the collective's blocks are parts of the data of all ranks, and the planner chooses the
/// number of parts. Otherwise each block belongs to one rank, or to a pair of ranks.
bool has_free_parts(Collective collective) noexcept;

}  // namespace xylem::collectives
