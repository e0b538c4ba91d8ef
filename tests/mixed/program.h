// SPDX-License-Identifier: Apache-2.0
//
// Programs drawn from a seed: what all ranks of a job call, in one order, and which value every
// element of every input has. All of it is a pure function of the seed, so each rank knows what
// every element of its outputs must be.
#pragma once

#include "xylem/xylem.h"

#include <cstdint>
#include <vector>

namespace xylem::test::mixed {

/// A hash of the arguments; what is random in a program comes from here.
std::uint64_t draw(std::uint64_t seed, std::uint64_t what, std::uint64_t of = 0) noexcept;

enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  all_gather_v,
  reduce_scatter,
  reduce_scatter_v,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  barrier,
  message,      ///< Every rank sends to the one `shift` after it.
  message_any,  ///< As message; receives name no source.
};
inline constexpr std::uint64_t kKinds = 14;

struct MixedCall {
  Kind kind = Kind::barrier;
  std::uint32_t number = 0;  ///< In its program.
  std::uint32_t comm = 0;    ///< Index of the communicator.
  DataType type = DataType::int32;
  RedOp op = RedOp::sum;
  std::uint32_t root = 0;   ///< Of the communicator's ranks, modulo its size; or the shift.
  std::uint64_t count = 0;  ///< One rank's share; the mean of uneven calls.
  std::uint64_t seed = 0;   ///< Of what is local: in place, offsets, kind of memory, values.
};

/// Communicators of a program: the world, a copy of it, and three that overlap.
inline constexpr std::uint32_t kComms = 5;
/// Color and key of a rank of the world in communicator `comm` (2 and more).
std::int32_t color_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept;
std::int32_t key_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept;

std::vector<MixedCall> make_program(std::uint64_t seed, std::uint32_t calls);

/// What rank `rank` of the communicator gives as element `index`: small, so that sums are exact in
/// every type.
std::uint32_t value_of(const MixedCall& call, std::uint32_t rank, std::uint64_t index) noexcept;
/// Elements that `rank` has in an uneven call, or that it sends to `to`.
std::uint64_t count_of(const MixedCall& call, std::uint32_t rank, std::uint32_t to = 0) noexcept;
/// The reduction of element `index` over `size` ranks.
std::uint32_t reduced(const MixedCall& call, std::uint32_t size, std::uint64_t index) noexcept;

/// Writes and reads such a value as an element of a type.
void store_value(std::byte* at, DataType type, std::uint32_t value) noexcept;
bool holds_value(const std::byte* at, DataType type, std::uint32_t value) noexcept;

}  // namespace xylem::test::mixed
