// SPDX-License-Identifier: Apache-2.0
//
// What goes around a ring: sums that collect contributions, and pieces that all shall have. The
// rings of all ranks, of a host's ranks, and of the ranks with the same place on every host are
// made of it.
#pragma once

#include "xylem/collectives/builder.h"

#include <cstdint>

namespace xylem::collectives {

/// A ring of ranks, as the one at `place` sees it.
struct Ring {
  std::uint32_t size = 1;
  std::uint32_t place = 0;
  std::uint32_t next = 0;  ///< The rank at the next place.
  std::uint32_t previous = 0;

  /// The place, or piece, `distance` before this one. Precondition: distance ≤ size.
  std::uint32_t back(std::uint32_t distance) const { return before(place, distance); }
  std::uint32_t before(std::uint32_t from, std::uint32_t distance) const {
    return (from + size - distance) % size;
  }
};

/// `rank_at(place)`: who stands at a place.
template <typename RankAt>
Ring make_ring(std::uint32_t size, std::uint32_t place, RankAt&& rank_at) {
  return {size, place, rank_at((place + 1) % size), rank_at((place + size - 1) % size)};
}

/// The data of a ring, cut into as many pieces as it has places: `blocks` blocks each, the first
/// from `first` and each `stride` after the one before.
struct Pieces {
  std::uint32_t first = 0;
  std::uint32_t blocks = 1;
  std::uint32_t stride = blocks;

  Chunks in(Buffer buffer, std::uint32_t piece) const {
    return {buffer, first + piece * stride, blocks};
  }
};

/// Every piece collects its sum once around. A rank begins by sending piece `begin` of its data,
/// which lies in `own`, and ends with the sum of the piece after that, in the output. `finish`:
/// whether these sums are complete.
inline void reduce_around(
    Builder& plan, const Ring& ring, Pieces pieces, Buffer own, std::uint32_t begin, bool finish) {
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    const std::uint32_t outgoing = ring.before(begin, round);
    const std::uint32_t incoming = ring.before(outgoing, 1);
    plan.send(ring.next, pieces.in(round == 0 ? own : Buffer::output, outgoing));
    const Chunks partial = plan.add_scratch(pieces.in(own, incoming).first, pieces.blocks);
    plan.recv(ring.previous, partial);
    plan.reduce(pieces.in(Buffer::output, incoming), {partial, pieces.in(own, incoming)},
                finish && round + 2 == ring.size);
  }
}

/// Every piece collects its sum once around and ends at its place. `own(piece)` is this rank's
/// contribution, asked for in the order in which pieces are summed up. Returns the sum of the piece
/// of this place: `finish` says that it is complete, and puts it into the output, chunk 0. In a
/// ring of one that is its own contribution, where it lies.
///
/// Sums are formed where they arrive, in whole chunks and not in rings: all slices of a round are
/// sent before the first of the next, so a sum waits for its turn, and if it held up its sender
/// meanwhile, the ring would lock.
template <typename Own>
Chunks collect_around(Builder& plan, const Ring& ring, Pieces pieces, Own&& own, bool finish) {
  Chunks sum = own(ring.back(1));
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    const bool is_last = round + 2 == ring.size;
    const std::uint32_t piece = ring.back(round + 2);
    plan.send(ring.next, sum);
    const Chunks mine = own(piece);
    const Chunks partial = plan.add_scratch(pieces.in(Buffer::input, piece).first, pieces.blocks);
    plan.recv(ring.previous, partial);
    sum = is_last && finish ? output(0, pieces.blocks) : partial;
    plan.reduce(sum, {partial, mine}, is_last && finish);
  }
  return sum;
}

/// Passes each piece once around: what came in one round goes on in the next. A rank begins with
/// piece `begin`, which is `first`.
inline void pass_around(
    Builder& plan, const Ring& ring, Pieces pieces, std::uint32_t begin, Chunks first) {
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    const std::uint32_t outgoing = ring.before(begin, round);
    plan.send(ring.next, round == 0 ? first : pieces.in(Buffer::output, outgoing));
    plan.recv(ring.previous, pieces.in(Buffer::output, ring.before(outgoing, 1)));
  }
}

}  // namespace xylem::collectives
