// SPDX-License-Identifier: Apache-2.0
//
// Data that travels around a ring: partial sums that collect contributions, and pieces that every
// rank needs. Used for rings of all ranks, of the ranks of one host, and of the ranks with the same
// place on every host.
#pragma once

#include "xylem/collectives/builder.h"

#include <cstdint>
#include <vector>

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

/// Consecutive blocks.
struct BlockRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

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

/// Round `round` of reduce_around().
template <typename AnyPieces>
void reduce_round(Builder& plan,
                  const Ring& ring,
                  const AnyPieces& pieces,
                  Buffer own,
                  std::uint32_t begin,
                  bool finish,
                  std::uint32_t round) {
  const std::uint32_t outgoing = ring.before(begin, round);
  const std::uint32_t incoming = ring.before(outgoing, 1);
  plan.send(ring.next, pieces.in(round == 0 ? own : Buffer::output, outgoing));
  const Chunks mine = pieces.in(own, incoming);
  const Chunks partial = plan.add_scratch(mine.first, mine.count);
  plan.recv(ring.previous, partial);
  plan.reduce(pieces.in(Buffer::output, incoming), {partial, mine},
              finish && round + 2 == ring.size);
}

/// Each piece travels around the ring once and collects its sum. A rank begins by sending piece
/// `begin` of its own data, which is in the buffer `own`. At the end its output holds the sum of
/// the piece after `begin`. `finish`: the sums contain the contributions of all ranks of the plan
/// (Step::finish).
template <typename AnyPieces>
void reduce_around(Builder& plan,
                   const Ring& ring,
                   const AnyPieces& pieces,
                   Buffer own,
                   std::uint32_t begin,
                   bool finish) {
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    reduce_round(plan, ring, pieces, own, begin, finish, round);
  }
}

/// Round `round` of pass_around().
template <typename AnyPieces>
void pass_round(Builder& plan,
                const Ring& ring,
                const AnyPieces& pieces,
                std::uint32_t begin,
                Chunks first,
                std::uint32_t round) {
  const std::uint32_t outgoing = ring.before(begin, round);
  plan.send(ring.next, round == 0 ? first : pieces.in(Buffer::output, outgoing));
  plan.recv(ring.previous, pieces.in(Buffer::output, ring.before(outgoing, 1)));
}

/// Each piece travels around the ring once: in each round a rank forwards the piece that it
/// received in the round before. A rank begins with piece `begin`, whose data is `first`.
template <typename AnyPieces>
void pass_around(
    Builder& plan, const Ring& ring, const AnyPieces& pieces, std::uint32_t begin, Chunks first) {
  for (std::uint32_t round = 0; round + 1 < ring.size; ++round) {
    pass_round(plan, ring, pieces, begin, first, round);
  }
}

/// The sums of some blocks, in the order of the blocks.
using BlockSums = std::vector<Chunks>;

/// Each piece of a ring of `size` places travels around the ring once, collects its sum, and ends
/// at the place with the same number. A piece consists of blocks, which are sent one by one.
///
/// `blocks(piece)` returns the blocks of the piece that pass this rank, at `place`.
/// `next(piece, block)` and `previous(piece, block)` return the ranks to which this rank sends the
/// block, and from which it receives it. `own(piece)` returns this rank's contributions; it is
/// called in the order in which the pieces are summed. Returns the sums of the piece of this place.
/// With `finish`, they contain the contributions of all ranks of the plan, and the piece of this
/// place must be one block: its sum is stored in the output. In a ring of one rank, returns own(0)
/// without a copy.
///
/// Partial sums are formed in place, in whole chunks and not in ring buffers. All slices of a round
/// are sent before the first slice of the next round, so a partial sum may have to wait. If it
/// waited in a ring buffer, it would block the rank that sends the next contributions, and the
/// ranks would deadlock.
template <typename Blocks, typename Next, typename Previous, typename Own>
BlockSums collect_around(Builder& plan,
                         std::uint32_t size,
                         std::uint32_t place,
                         Blocks&& blocks,
                         Next&& next,
                         Previous&& previous,
                         Own&& own,
                         bool finish) {
  const auto back = [&](std::uint32_t distance) { return (place + size - distance) % size; };
  BlockSums sums = own(back(1));
  for (std::uint32_t round = 0; round + 1 < size; ++round) {
    const bool is_last = finish && round + 2 == size;
    const std::uint32_t outgoing = back(round + 1), incoming = back(round + 2);
    const BlockRange sent = blocks(outgoing), received = blocks(incoming);
    for (std::uint32_t i = 0; i < sent.count; ++i) {
      plan.send(next(outgoing, sent.first + i), sums[i]);
    }
    const BlockSums mine = own(incoming);
    sums.clear();
    for (std::uint32_t i = 0; i < received.count; ++i) {
      const Chunks partial = plan.add_scratch(received.first + i);
      plan.recv(previous(incoming, received.first + i), partial);
      sums.push_back(is_last ? output(0) : partial);
      plan.reduce(sums.back(), {partial, mine[i]}, is_last);
    }
  }
  return sums;
}

}  // namespace xylem::collectives
