// SPDX-License-Identifier: Apache-2.0
//
// Builder: composes a schedule step by step. It derives the dependencies from the hazards on chunks
// (read after write, write after read, write after write), both out of place and in place, so a
// planner only states which data moves where. The builder proves nothing; verify() does,
// independently of it.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace xylem::collectives {

/// `count` consecutive chunks of `buffer`, from chunk `first` on, at `rank`. The rank kNone means
/// the rank whose schedule the Builder makes.
struct Chunks {
  Buffer buffer = Buffer::input;
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  std::uint32_t rank = kNone;
};
inline Chunks input(std::uint32_t first, std::uint32_t count = 1) {
  return {Buffer::input, first, count};
}
inline Chunks output(std::uint32_t first, std::uint32_t count = 1) {
  return {Buffer::output, first, count};
}
inline Chunks scratch(std::uint32_t first, std::uint32_t count = 1) {
  return {Buffer::scratch, first, count};
}

class Builder {
 public:
  /// For all_reduce, reduce and broadcast, `blocks` is the number of parts into which the data is
  /// divided. For other collectives the shape determines the number of blocks: pass 0.
  Builder(std::string_view algorithm,
          const Shape& shape,
          std::uint32_t rank,
          std::uint32_t blocks = 0,
          std::uint32_t channels = 1);

  /// Reserves memory for this many steps and operands. Useful for plans with thousands of steps.
  void reserve(std::size_t steps, std::size_t operands);

  /// Adds `count` scratch chunks that hold blocks first_block, first_block + 1, …, and returns
  /// them.
  Chunks add_scratch(std::uint32_t first_block, std::uint32_t count = 1);

  StepId send(std::uint32_t peer, Chunks source, std::uint8_t channel = 0);
  StepId recv(std::uint32_t peer, Chunks target, std::uint8_t channel = 0);
  StepId copy(Chunks target, Chunks source);
  StepId reduce(Chunks target, std::initializer_list<Chunks> sources, bool finish = false);
  StepId reduce(Chunks target, std::span<const Chunks> sources, bool finish = false);
  StepId put(std::uint32_t peer, Chunks target, Chunks source, std::uint8_t channel = 0);
  StepId signal(std::uint32_t peer, std::uint8_t channel = 0);
  StepId wait(std::uint32_t peer, std::uint32_t value, std::uint8_t channel = 0);
  /// Adds a dependency that no hazard implies: `step` runs after `before`. `step` must be the step
  /// that was added last.
  void after(StepId step, StepId before);

  /// Returns the complete schedule. The builder must not be used afterwards.
  Schedule take() &&;

 private:
  /// The accesses to one chunk on which the next step that accesses the chunk may depend.
  struct Hazards {
    StepId writer = kNone;  ///< Last writer.
    /// Last writer in an in-place call. A copy that copies the chunk onto itself in such a call
    /// does not count as a writer.
    StepId in_place_writer = kNone;
    /// Newest reader since the last write, as an index into readers_; kNone if there is none.
    std::uint32_t last_reader = kNone;
  };
  /// The readers of one chunk form a list, newest first.
  struct Reader {
    StepId step = kNone;
    std::uint32_t earlier = kNone;  ///< Index into readers_; kNone for the oldest reader.
  };

  Step& append(StepKind kind, std::span<const Chunks> sources, const Chunks* target);
  StepId append_to(std::uint32_t peer,
                   std::uint8_t channel,
                   StepKind kind,
                   std::span<const Chunks> sources,
                   const Chunks* target);
  StepId newest() const noexcept;
  void add_operand(const Chunks& chunks, std::uint32_t count);
  bool is_own(const Chunks& chunks) const noexcept;
  Hazards* aliased_input_hazards(const Chunks& output, std::uint32_t index);
  Hazards* aliased_output_hazards(const Chunks& input, std::uint32_t index);
  void depend_on(StepId before);
  void depend_on_readers(const Hazards& chunk);
  void read(StepId step, const Chunks& chunks, std::uint32_t count);
  void write(StepId step, const Chunks& chunks, std::uint32_t count, const Chunks* copied_from);
  Hazards& hazards(Buffer buffer, std::uint32_t chunk);

  Schedule schedule_;
  std::vector<Hazards> hazards_[3];  // hazards_[b][c] is for chunk c of buffer b.
  std::vector<Reader> readers_;
  // For in-place calls: the output chunk that shares memory with each input chunk, and the input
  // chunk that shares memory with each output chunk; kNone if there is none.
  std::vector<std::uint32_t> output_of_, input_of_;
};

}  // namespace xylem::collectives
