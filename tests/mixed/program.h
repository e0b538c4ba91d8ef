// SPDX-License-Identifier: Apache-2.0
//
// Programs drawn from a seed: the calls that all ranks of a job make in the same order, and the
// value of every input element. A program is a pure function of its seed, so each rank can compute
// its expected outputs.
#pragma once

#include "xylem/xylem.h"

#include <cstdint>
#include <vector>

namespace xylem::test::mixed {

/// A hash of the arguments. It serves as the random number for everything that a program draws.
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
  message,      ///< Every rank sends to the rank that is `root` places after it.
  message_any,  ///< Like message, but receives accept any source.
};
inline constexpr std::uint64_t kKinds = 14;

struct MixedCall {
  Kind kind = Kind::barrier;
  std::uint32_t number = 0;  ///< Position in the program.
  std::uint32_t comm = 0;    ///< Index of the communicator.
  DataType type = DataType::int32;
  RedOp op = RedOp::sum;
  /// Root of the call, modulo the communicator's size. For messages, the distance to the receiver.
  std::uint32_t root = 0;
  std::uint64_t count = 0;  ///< Elements of one rank; the average if parts are uneven.
  /// Seed of what each rank draws: in place or not, offsets, kind of memory, values.
  std::uint64_t seed = 0;
};

/// A program uses five communicators: the world, a copy of the world, and three that overlap.
inline constexpr std::uint32_t kComms = 5;
/// Color and key of a world rank in the split that creates communicator `comm`, which is at least
/// 2.
std::int32_t color_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept;
std::int32_t key_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept;

std::vector<MixedCall> make_program(std::uint64_t seed, std::uint32_t calls);

/// Element `index` of the input of `rank`. Values are so small that reductions are exact in every
/// type.
std::uint32_t value_of(const MixedCall& call, std::uint32_t rank, std::uint64_t index) noexcept;
/// Number of elements of `rank` in a call with uneven parts. For all_to_all_v, the number of
/// elements that `rank` sends to `to`.
std::uint64_t count_of(const MixedCall& call, std::uint32_t rank, std::uint32_t to = 0) noexcept;
/// Number of elements that fit into the receive buffer of `rank` in a message. Usually this is the
/// length of the message, often more, and less only if `may_be_less` is true.
std::uint64_t room_of(const MixedCall& call, std::uint32_t rank, bool may_be_less) noexcept;
/// The reduction of element `index` over the inputs of `size` ranks.
std::uint32_t reduced(const MixedCall& call, std::uint32_t size, std::uint64_t index) noexcept;

/// store_value() writes a value as an element of `type`. holds_value() returns true if the element
/// has this value.
void store_value(std::byte* at, DataType type, std::uint32_t value) noexcept;
bool holds_value(const std::byte* at, DataType type, std::uint32_t value) noexcept;

}  // namespace xylem::test::mixed
