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

  /// The number of the place, or of the piece, that is `distance` before `place` in the ring.
  /// Precondition: distance ≤ size.
  std::uint32_t back(std::uint32_t distance) const { return before(place, distance); }
  std::uint32_t before(std::uint32_t from, std::uint32_t distance) const {
    return (from + size - distance) % size;
  }
};

/// The ring as seen from `place`. `rank_at(p)` returns the rank at place p.
template <typename RankAt>
Ring make_ring(std::uint32_t size, std::uint32_t place, RankAt&& rank_at) {
  return {size, place, rank_at((place + 1) % size), rank_at((place + size - 1) % size)};
}

/// The data of a ring, divided into as many pieces as there are places. A piece has `blocks`
/// blocks; piece 0 begins at block `first`, and each piece begins `stride` blocks after the
/// previous one.
struct Pieces {
  std::uint32_t first = 0;
  std::uint32_t blocks = 1;
  std::uint32_t stride = blocks;

  Chunks in(Buffer buffer, std::uint32_t piece) const {
    return {buffer, first + piece * stride, blocks};
  }
};

/// Each piece travels around the ring once and collects its sum. A rank begins by sending piece
/// `begin` of its own data, which is in the buffer `own`. At the end its output holds the sum of
/// the piece after `begin`. `finish`: the sums contain the contributions of all ranks of the plan
/// (Step::finish).
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

/// Each piece travels around the ring once, collects its sum, and ends at the place with the same
/// number. `own(piece)` returns this rank's contribution to a piece; it is called in the order in
/// which the pieces are summed. Returns the chunks with the sum of the piece of this place. With
/// `finish`, the sum contains the contributions of all ranks of the plan, and is stored from output
/// chunk 0 on. In a ring of one rank, returns own(0) without a copy.
///
/// Partial sums are formed in place, in whole chunks and not in ring buffers. All slices of a round
/// are sent before the first slice of the next round, so a partial sum may have to wait. If it
/// waited in a ring buffer, it would block the rank that sends the next contributions, and the
/// ranks would deadlock.
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
