// SPDX-License-Identifier: Apache-2.0
//
// StreamProgram: a schedule whose ranks access each other's memory, bound to sizes, in the form in
// which a mesh enqueues it on a stream of its device (mesh.h). The steps run one after the other,
// without the CPU. Like a Program, it contains no addresses.
#pragma once

#include "xylem/execution/reduce_kernel.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution {

/// A mesh has at most this many ranks.
inline constexpr std::uint32_t kMostMeshRanks = 32;
/// A schedule for a mesh has at most this many channels.
inline constexpr std::uint32_t kMeshChannels = 3;

/// A call that does not fit into scratch runs in rounds. Each round runs all steps of the schedule.
/// In round k, each step works on slice k of its chunk; all rounds use the same scratch. In a
/// direct program, steps use the inputs and outputs of other ranks in place of scratch, and there
/// is one round.
struct StreamProgram {
  enum class Kind : std::uint8_t { copy, reduce, signal, wait };  ///< As StepKind (schedule.h).
  enum class Buffer : std::uint8_t { input, output, scratch };
  struct Operand {
    /// The rank that has the buffer. Unless the program is direct, this is another rank only for
    /// scratch.
    std::uint32_t rank = 0;
    Buffer buffer = Buffer::input;
    std::uint64_t offset = 0;  ///< Of slice 0, in bytes. In scratch, all slices have this offset.
  };
  struct Step {
    Kind kind = Kind::copy;
    bool is_scaled = false;    ///< True for a copy that multiplies by StreamCall::factor.
    std::uint8_t channel = 0;  ///< For signal and wait, less than kMeshChannels.
    std::uint32_t peer = 0;    ///< For signal and wait.
    std::uint64_t bytes = 0;   ///< Of the whole chunk, for copy and reduce.
    Operand target{};          ///< For copy and reduce. Of another rank only in a direct program.
    std::uint32_t first_source = 0, source_count = 0;  ///< A range of `sources`.
    /// A range of `puts`: further targets of the result. Only in a direct program.
    std::uint32_t first_put = 0, put_count = 0;
  };

  std::string algorithm;
  /// The most bytes that any step moves in a round.
  std::uint64_t slice_bytes = 0;
  std::uint64_t rounds = 0;  ///< The same on all ranks. 0: there is nothing to do.
  std::uint32_t element_bytes = 1;
  std::uint32_t divisor = 1;  ///< For an average: the number of ranks.
  bool is_direct = false;
  /// Identifies the call. It is the same on all ranks whose calls match. In a direct program, a
  /// rank uses the buffers of other ranks only if they have published this number.
  std::uint64_t call = 0;
  /// For a direct program: the sizes of this rank's buffers.
  std::uint64_t input_bytes = 0, output_bytes = 0;
  /// The kernels. In a direct program, those of `reduce` and `copy` take ExchangeArguments.
  KernelId reduce = 0, copy = 0, scale = 0, signal = 0;
  std::vector<Step> steps;
  std::vector<Operand> sources, puts;

  std::span<const Operand> sources_of(const Step& step) const noexcept {
    return std::span(sources).subspan(step.first_source, step.source_count);
  }
  std::span<const Operand> puts_of(const Step& step) const noexcept {
    return std::span(puts).subspan(step.first_put, step.put_count);
  }
  /// How many bytes a step moves in a round.
  std::uint64_t bytes_in(const Step& step, std::uint64_t round) const noexcept {
    const std::uint64_t begin = round * slice_bytes;
    return begin >= step.bytes ? 0 : std::min(slice_bytes, step.bytes - begin);
  }
  std::uint64_t offset_in(const Operand& operand, std::uint64_t round) const noexcept {
    return operand.offset + (operand.buffer == Buffer::scratch ? 0 : round * slice_bytes);
  }
};

}  // namespace xylem::execution
