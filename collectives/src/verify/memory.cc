// SPDX-License-Identifier: Apache-2.0
//
// Where chunks lie under each aliasing.
#include "verify/memory.h"

#include <fmt/format.h>

namespace xylem::collectives::verifier {

Locations::Locations(const World& world, Aliasing aliasing) : world_(world), aliasing_(aliasing) {
  first_.push_back(0);
  for (std::uint32_t rank = 0; rank < world.ranks.size(); ++rank) {
    first_.push_back(first_.back() + chunks(rank, Buffer::input) + chunks(rank, Buffer::output) +
                     chunks(rank, Buffer::scratch));
  }
}

std::uint32_t Locations::chunks(std::uint32_t rank, Buffer buffer) const {
  return chunk_count(world_.ranks[rank], rank, buffer);
}

Location Locations::of(const Operand& operand, std::uint32_t index) const {
  const Location base = first_[operand.rank];
  const std::uint32_t chunk = operand.chunk + index;
  const std::uint32_t inputs = chunks(operand.rank, Buffer::input);
  switch (operand.buffer) {
    case Buffer::input: return base + chunk;
    case Buffer::output: {
      if (aliasing_ == Aliasing::out_of_place) return base + inputs + chunk;
      const auto input = aliased_input(world_.ranks[0].shape, operand.rank, chunk);
      return input ? base + *input : base + inputs + chunk;
    }
    case Buffer::scratch: return base + inputs + chunks(operand.rank, Buffer::output) + chunk;
  }
  return base;
}

bool Locations::is_void(const Schedule& schedule, const Step& step) const {
  if (step.kind != StepKind::copy) return false;
  const Operand& target = schedule.operands[step.target];
  const Operand& source = schedule.operands[step.first_source];
  for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
    if (of(target, i) != of(source, i)) return false;
  }
  return true;
}

std::string Locations::describe(Location location) const {
  std::uint32_t rank = 0;
  while (first_[rank + 1] <= location) ++rank;
  std::uint32_t chunk = location - first_[rank];
  for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
    if (chunk < chunks(rank, buffer))
      return fmt::format("{}[{}] of rank {}", name(buffer), chunk, rank);
    chunk -= chunks(rank, buffer);
  }
  return "nothing";
}

}  // namespace xylem::collectives::verifier
