// SPDX-License-Identifier: Apache-2.0
//
// Data that travels around a ring: partial sums that collect contributions, and pieces that every
// rank needs. Used for rings of all ranks, of the ranks of one host, and of the ranks with the same
// place on every host.
#pragma once

#include "xylem/collectives/builder.h"

#include <cstdint>

namespace xylem::collectives {

/// A ring of ranks, as seen by the rank at `place`.
struct Ring {
  std::uint32_t size = 1;
  std::uint32_t place = 0;
  std::uint32_t next = 0;  ///< The rank at the next place.
  std::uint32_t previous = 0;

  /// The place, or the piece, that is `distance` before this one. Precondition: distance ≤ size.
  std::uint32_t back(std::uint32_t distance) const { return before(place, distance); }
  std::uint32_t before(std::uint32_t from, std::uint32_t distance) const {
    return (from + size - distance) % size;
  }
};

/// `rank_at(place)` is the rank at a place.
template <typename RankAt>
Ring make_ring(std::uint32_t size, std::uint32_t place, RankAt&& rank_at) {
  return {size, place, rank_at((place + 1) % size), rank_at((place + size - 1) % size)};
}

/// The data of a ring, divided into as many pieces as there are places. A piece has `blocks`
/// blocks; piece 0 begins at `first`, and each piece begins `stride` after the previous one.
struct Pieces {
  std::uint32_t first = 0;
  std::uint32_t blocks = 1;
  std::uint32_t stride = blocks;

  Chunks in(Buffer buffer, std::uint32_t piece) const {
    return {buffer, first + piece * stride, blocks};
  }
};

/// Each piece travels around the ring once and collects its sum. A rank begins by sending piece
/// `begin` of its own data, which is in `own`, and ends with the sum of the piece after `begin` in
/// the output. `finish` tells whether these sums are complete.
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

/// Each piece travels around the ring once, collects its sum, and ends at its own place.
/// `own(piece)` returns this rank's contribution to a piece; it is called in the order in which the
/// pieces are summed. Returns the sum of this place's piece. With `finish` the sum is complete and
/// is put into output chunk 0. In a ring of one rank, returns the rank's own contribution where it
/// lies.
///
/// Partial sums are formed in place, in whole chunks and not in ring buffers. All slices of a round
/// are sent before the first slice of the next round, so a sum may have to wait for its turn. If a
/// waiting sum blocked its sender, the ring would deadlock.
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

/// Each piece travels around the ring once: in each round a rank forwards the piece that it
/// received in the round before. A rank begins with piece `begin`, whose data is `first`.
inline void pass_around(
    Builder& plan, const Ring& ring, Pieces pieces, std::uint32_t begin, Chunks first) {
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    const std::uint32_t outgoing = ring.before(begin, round);
    plan.send(ring.next, round == 0 ? first : pieces.in(Buffer::output, outgoing));
    plan.recv(ring.previous, pieces.in(Buffer::output, ring.before(outgoing, 1)));
  }
}

}  // namespace xylem::collectives
