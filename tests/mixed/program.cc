// SPDX-License-Identifier: Apache-2.0
#include "mixed/program.h"

#include "xylem/base/hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace xylem::test::mixed {
namespace {

constexpr DataType kTypes[] = {DataType::int8,     DataType::uint8,   DataType::int16,
                               DataType::uint16,   DataType::int32,   DataType::uint32,
                               DataType::int64,    DataType::uint64,  DataType::float16,
                               DataType::bfloat16, DataType::float32, DataType::float64};
constexpr RedOp kOps[] = {RedOp::sum, RedOp::product, RedOp::min,    RedOp::max,
                          RedOp::avg, RedOp::bit_and, RedOp::bit_or, RedOp::bit_xor};

bool is_float(DataType type) noexcept {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 ||
         type == DataType::float64;
}

/// Draws a size near those at which a transport changes the way of a message: within a queue entry,
/// within a header, in small slots, in large slots, and as a stream.
std::uint64_t draw_bytes(std::uint64_t seed) noexcept {
  constexpr std::uint64_t kEdges[] = {0,    1,    8,    40,    64,    96,     104,     200,
                                      4096, 4136, 8192, 16384, 65536, 131072, 300'000, 1 << 20};
  const std::uint64_t chance = draw(seed, 1) % 100;
  const std::size_t edges = chance < 60 ? 8 : chance < 85 ? 12 : chance < 97 ? 14 : 16;
  const std::uint64_t edge = kEdges[draw(seed, 2) % edges];
  switch (draw(seed, 3) % 4) {
    case 0: return edge;
    case 1: return edge + draw(seed, 4) % 9;
    case 2: return edge - std::min<std::uint64_t>(edge, draw(seed, 4) % 9);
    default: return edge == 0 ? 0 : draw(seed, 4) % edge;
  }
}

/// Converts an integer to float16. This is exact for integers below 2048.
std::uint16_t half_of(std::uint32_t value) noexcept {
  if (value == 0) return 0;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(value) - 1);
  const std::uint32_t mantissa = (value << 10 >> exponent) & 0x3ff;
  return static_cast<std::uint16_t>((exponent + 15) << 10 | mantissa);
}

/// Returns the value as an element of `type`. Only the first size_of(type) bytes are used.
std::array<std::byte, 8> encode(DataType type, std::uint32_t value) noexcept {
  std::array<std::byte, 8> bytes{};
  const auto put = [&](auto element) { std::memcpy(bytes.data(), &element, sizeof element); };
  switch (type) {
    case DataType::float16: put(half_of(value)); break;
    case DataType::bfloat16:
      put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                     16));
      break;
    case DataType::float32: put(static_cast<float>(value)); break;
    case DataType::float64: put(static_cast<double>(value)); break;
    // Right for all integer types, since bytes are in little-endian order.
    default: put(std::uint64_t{value}); break;
  }
  return bytes;
}

}  // namespace

std::uint64_t draw(std::uint64_t seed, std::uint64_t what, std::uint64_t of) noexcept {
  return mix(combine(combine(seed, what), of));
}

std::int32_t color_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept {
  // In the last communicator, some ranks have color -1, which leaves them out.
  const auto color = static_cast<std::int32_t>(draw(seed, 100 + comm, rank) % 3);
  return comm + 1 == kComms ? color - 1 : color % 2;
}

std::int32_t key_of(std::uint64_t seed, std::uint32_t comm, std::uint32_t rank) noexcept {
  return static_cast<std::int32_t>(draw(seed, 200 + comm, rank) % 7);
}

std::vector<MixedCall> make_program(std::uint64_t seed, std::uint32_t calls) {
  std::vector<MixedCall> program(calls);
  for (std::uint32_t number = 0; number < calls; ++number) {
    MixedCall& call = program[number];
    const std::uint64_t own = draw(seed, 1000, number);
    call.number = number;
    call.seed = own;
    call.kind = static_cast<Kind>(draw(own, 10) % kKinds);
    call.comm = static_cast<std::uint32_t>(draw(own, 11) % kComms);
    call.type = kTypes[draw(own, 12) % std::size(kTypes)];
    call.op = kOps[draw(own, 13) % (is_float(call.type) ? 5 : std::size(kOps))];
    call.root = static_cast<std::uint32_t>(draw(own, 14) % 64);
    call.count = draw_bytes(own) / size_of(call.type);
  }
  return program;
}

std::uint32_t value_of(const MixedCall& call, std::uint32_t rank, std::uint64_t index) noexcept {
  const std::uint64_t of_index = (index + call.seed) * 0x9e3779b97f4a7c15U;
  // Values are equal on all ranks, so their average is exact. In a product, the value of at most
  // one rank is not 1.
  if (call.op == RedOp::avg) return static_cast<std::uint32_t>(of_index >> 62);
  if (call.op == RedOp::product) return rank == (of_index >> 61) ? 3 : 1;
  return static_cast<std::uint32_t>((of_index ^ (rank + 1) * 0xc2b2ae3d27d4eb4fU) >> 62);
}

std::uint64_t count_of(const MixedCall& call, std::uint32_t rank, std::uint32_t to) noexcept {
  const std::uint64_t chance = draw(call.seed, 20 + rank, to);
  if (chance % 4 == 0) return 0;
  return chance / 4 % (2 * call.count + 1);
}

std::uint64_t room_of(const MixedCall& call, std::uint32_t rank, bool may_be_less) noexcept {
  const std::uint64_t chance = draw(call.seed, 60, rank), kind = chance % 8;
  if (kind == 0 && may_be_less && call.count > 0) return chance / 8 % call.count;
  return kind < 3 ? call.count + chance / 8 % (call.count + 9) : call.count;
}

std::uint32_t reduced(const MixedCall& call, std::uint32_t size, std::uint64_t index) noexcept {
  std::uint32_t result = value_of(call, 0, index);
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    const std::uint32_t value = value_of(call, rank, index);
    switch (call.op) {
      case RedOp::product: result *= value; break;
      case RedOp::min: result = std::min(result, value); break;
      case RedOp::max: result = std::max(result, value); break;
      case RedOp::bit_and: result &= value; break;
      case RedOp::bit_or: result |= value; break;
      case RedOp::bit_xor: result ^= value; break;
      case RedOp::avg: break;
      default: result += value; break;
    }
  }
  return result;
}

void store_value(std::byte* at, DataType type, std::uint32_t value) noexcept {
  std::memcpy(at, encode(type, value).data(), size_of(type));
}

bool holds_value(const std::byte* at, DataType type, std::uint32_t value) noexcept {
  return std::memcmp(at, encode(type, value).data(), size_of(type)) == 0;
}

}  // namespace xylem::test::mixed
