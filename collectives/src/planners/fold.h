// SPDX-License-Identifier: Apache-2.0
//
// Fold: reduces any number of ranks to a power of two. With n = p + e, where p is the largest power
// of two, the even ranks among the first 2e ranks send their data to their right neighbours, sit
// out, and receive the result at the end (Thakur, Rabenseifner, Gropp: "Optimization of collective
// communication operations in MPICH", 2005, section 4.5).
#pragma once

#include <bit>
#include <cstdint>

namespace xylem::collectives {

/// Numbers the ranks that do not sit out; these numbers are called places. The order of the ranks
/// is kept, so lower places hold contributions of lower ranks.
class Fold {
 public:
  Fold(std::uint32_t ranks, std::uint32_t rank)
      : places_(std::bit_floor(ranks)), extra_(ranks - places_), rank_(rank) {}

  std::uint32_t places() const { return places_; }
  bool is_folded_away() const { return rank_ < 2 * extra_ && rank_ % 2 == 0; }
  /// Whether this rank receives the data of its left neighbour, which sits out.
  bool receives_partner_data() const { return rank_ < 2 * extra_ && rank_ % 2 == 1; }
  /// Requires !is_folded_away().
  std::uint32_t place() const { return rank_ < 2 * extra_ ? rank_ / 2 : rank_ - extra_; }
  std::uint32_t rank_at(std::uint32_t place) const {
    return place < extra_ ? 2 * place + 1 : place + extra_;
  }

 private:
  std::uint32_t places_;
  std::uint32_t extra_;
  std::uint32_t rank_;
};

}  // namespace xylem::collectives
