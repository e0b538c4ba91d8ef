// SPDX-License-Identifier: Apache-2.0
//
// StreamProgram: a schedule whose ranks access each other's memory, bound to sizes, in the form in
// which a mesh enqueues it on a stream of its device (mesh.h). The steps run one after the other,
// without the CPU. Like a Program, it contains no addresses.
#pragma once

#include "xylem/execution/reduce_kernel.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution {

/// A mesh has at most this many ranks.
inline constexpr std::uint32_t kMostMeshRanks = 32;
/// A schedule for a mesh has at most this many channels.
inline constexpr std::uint32_t kMeshChannels = 2;

/// Of each buffer of a rank, a peer uses at most one chunk. With its signals on channel 0, a rank
/// publishes to each peer where these chunks are.
///
/// Peers cannot access every buffer. A rank then copies the chunks to its staging memory, which has
/// room for one slice for each peer. So a call runs in rounds: in round k, slice k of each chunk is
/// published. A rank and a peer take part in as many rounds as the longest chunk that one of them
/// uses of the other has slices.
struct StreamProgram {
  enum class Kind : std::uint8_t { copy, reduce, signal, wait };  ///< As StepKind (schedule.h).
  enum class Buffer : std::uint8_t { input, output };
  struct Operand {
    std::uint32_t rank = 0;  ///< The rank that has the buffer.
    Buffer buffer = Buffer::input;
    std::uint64_t offset = 0;  ///< In bytes; for this rank's buffers only.
  };
  struct Step {
    Kind kind = Kind::copy;
    std::uint8_t channel = 0;  ///< For signal and wait, less than kMeshChannels.
    std::uint32_t peer = 0;    ///< For signal and wait.
    std::uint64_t rounds = 1;  ///< For signal and wait: in this many rounds.
    std::uint64_t bytes = 0;   ///< Of the whole chunk, for copy and reduce.
    Operand target{};          ///< For copy and reduce.
    std::uint32_t first_source = 0, source_count = 0;  ///< A range of `sources`.
    std::uint32_t first_put = 0, put_count = 0;        ///< A range of `puts`: further targets.
  };
  /// A chunk of a buffer of this rank.
  struct Chunk {
    std::uint64_t offset = 0, bytes = 0;
  };
  /// The chunks that a rank uses; empty if it uses none.
  struct Uses {
    Chunk input, output;
  };

  std::string algorithm;
  std::uint64_t slice_bytes = 0;  ///< A multiple of 64.
  std::uint64_t rounds = 1;
  std::uint64_t bytes = 0;  ///< Of all steps that copy or reduce.
  std::uint32_t element_bytes = 1;
  std::uint32_t divisor = 1;  ///< For an average: the number of ranks.
  /// Identifies the call. It is the same on all ranks whose calls match. A rank uses the buffers of
  /// other ranks only if they have published this number, and the same number of elements.
  std::uint64_t call = 0;
  /// True if only the two ranks of a part know its size. So they compare it even if it is 0.
  bool has_private_counts = false;
  /// The kernels. Those of `reduce` and `copy` take ExchangeArguments.
  KernelId reduce = 0, copy = 0;
  /// True if the input is copied to staging memory in any case, and then used there by this rank,
  /// too.
  bool stages_input = false;
  /// The kernel by which the input is copied to staging memory and multiplied by
  /// StreamCall::factor, if the call multiplies.
  std::optional<KernelId> scale;
  std::vector<Step> steps;
  std::vector<Operand> sources, puts;
  /// uses[p] are the chunks of this rank's buffers that rank p uses. For this rank itself: the
  /// chunk of its input, if stages_input is true.
  std::vector<Uses> uses;

  std::span<const Operand> sources_of(const Step& step) const noexcept {
    return std::span(sources).subspan(step.first_source, step.source_count);
  }
  std::span<const Operand> puts_of(const Step& step) const noexcept {
    return std::span(puts).subspan(step.first_put, step.put_count);
  }
  /// How many bytes slice `round` of a chunk has.
  std::uint64_t bytes_in(std::uint64_t chunk_bytes, std::uint64_t round) const noexcept {
    const std::uint64_t begin = round * slice_bytes;
    return begin >= chunk_bytes ? 0 : std::min(slice_bytes, chunk_bytes - begin);
  }
};

}  // namespace xylem::execution
