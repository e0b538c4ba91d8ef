// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/compile_for_stream.h"

#include "xylem/execution/compute.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

namespace xylem::execution {
namespace {

using collectives::Buffer;
using collectives::Collective;
using collectives::Schedule;
using collectives::StepKind;

constexpr std::uint64_t kCacheLine = 64;

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// Compiles one Schedule into one StreamProgram. run() calls the other functions in order.
class StreamCompiler {
 public:
  StreamCompiler(const Schedule& schedule, const StreamProgramOptions& options)
      : schedule_(schedule),
        options_(options),
        layout_(schedule, options.counts),
        program_(std::make_shared<StreamProgram>()) {}

  Result<std::shared_ptr<const StreamProgram>> run() {
    program_->algorithm = schedule_.algorithm;
    program_->element_bytes = options_.counts.element_bytes;
    program_->divisor = options_.divisor;
    program_->reduce = options_.reduce;
    program_->copy = options_.copy;
    program_->signal = options_.signal;
    program_->scale = options_.scale;
    program_->is_direct = options_.is_direct;
    program_->call = options_.call;
    program_->input_bytes = layout_.bytes(Buffer::input);
    program_->output_bytes = layout_.bytes(Buffer::output);
    XYLEM_TRY(check_signals());
    XYLEM_TRY(choose_rounds());
    for (const collectives::Step& step : schedule_.steps) XYLEM_TRY(add(step));
    if (program_->rounds == 1) join_copies();
    return std::shared_ptr<const StreamProgram>(program_);
  }

 private:
  Status refuse(std::string_view why) const {
    return failure(Code::unsupported, fmt::format("devices cannot run {} by themselves: {}",
                                                  schedule_.algorithm, why));
  }

  /// Checks the rules for signals, by which no flag is set again before it has been cleared
  /// (collectives/src/planners/phases.h).
  Status check_signals() const {
    if (schedule_.shape.ranks > kMostMeshRanks || schedule_.channels > kMeshChannels) {
      return refuse("too many ranks or channels");
    }
    // Bit c of signalled[peer]: this rank has signalled the peer on channel c. Bit c of
    // awaited[peer]: this rank has waited for a signal of the peer on channel c.
    std::vector<std::uint32_t> signalled(schedule_.shape.ranks), awaited(schedule_.shape.ranks);
    for (const auto& step : schedule_.steps) {
      const std::uint32_t bit = 1U << step.channel;
      if (step.kind == StepKind::signal) {
        if ((signalled[step.peer] & bit) != 0) return refuse("a signal is sent twice");
        if (step.channel > 0 && (awaited[step.peer] & (bit - 1)) == 0) {
          return refuse("a later signal follows no earlier one");
        }
        signalled[step.peer] |= bit;
      } else if (step.kind == StepKind::wait) {
        if (step.value != 1) return refuse("a wait is for more than one signal");
        awaited[step.peer] |= bit;
      }
    }
    for (std::uint32_t peer = 0; peer < schedule_.shape.ranks; ++peer) {
      if ((signalled[peer] & 1U) != 0 && awaited[peer] < 2)
        return refuse("a signal is not answered");
    }
    return {};
  }

  /// Chooses the size of slices and the number of rounds. All ranks choose the same values, since
  /// each rank knows the sizes of all blocks of the call.
  Status choose_rounds() {
    std::uint64_t largest = 0;
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      for (std::uint32_t c = 0; c < chunk_count(schedule_, schedule_.rank, buffer); ++c) {
        largest = std::max(largest, layout_.extent(buffer, c, 1).bytes);
      }
    }
    if (options_.is_direct) {
      if (!schedule_.scratch.empty()) return refuse("it uses scratch, and buffers of other ranks");
      program_->slice_bytes = std::max(round_up(largest), kCacheLine);
      program_->rounds = largest == 0 ? 0 : 1;
      return {};
    }
    const std::uint64_t chunks = std::max(options_.scratch_chunks, 1U);
    const std::uint64_t fits = options_.scratch_bytes / chunks / kCacheLine * kCacheLine;
    if (fits == 0) return refuse("it needs more scratch than there is");
    program_->slice_bytes = std::min(std::max(round_up(largest), kCacheLine), fits);
    program_->rounds = (largest + program_->slice_bytes - 1) / program_->slice_bytes;
    if (schedule_.shape.collective == Collective::barrier) program_->rounds = 1;
    return {};
  }

  /// The position and size of a chunk in its buffer. The inputs and outputs of other ranks have
  /// layouts of their own.
  collectives::Extent extent(const collectives::Operand& operand) const {
    if (operand.rank == schedule_.rank || operand.buffer == Buffer::scratch) {
      return layout_.extent(operand.buffer, operand.chunk, 1);
    }
    Schedule other;
    other.shape = schedule_.shape;
    other.rank = operand.rank;
    other.blocks = schedule_.blocks;
    return collectives::Layout(other, options_.counts).extent(operand.buffer, operand.chunk, 1);
  }

  StreamProgram::Operand operand(std::uint32_t index) const {
    const auto& it = schedule_.operands[index];
    if (it.buffer == Buffer::scratch) {
      return {it.rank, StreamProgram::Buffer::scratch, it.chunk * program_->slice_bytes};
    }
    return {
        it.rank,
        it.buffer == Buffer::input ? StreamProgram::Buffer::input : StreamProgram::Buffer::output,
        extent(it).offset};
  }

  Status add(const collectives::Step& step) {
    using Kind = StreamProgram::Kind;
    StreamProgram::Step made;
    switch (step.kind) {
      case StepKind::signal:
      case StepKind::wait:
        made.kind = step.kind == StepKind::signal ? Kind::signal : Kind::wait;
        made.channel = step.channel;
        made.peer = step.peer;
        break;
      case StepKind::copy:
      case StepKind::reduce: {
        made.kind = step.kind == StepKind::copy ? Kind::copy : Kind::reduce;
        if (step.chunk_count != 1) return refuse("a step works on several chunks");
        if (step.source_count > kMostSourcesOnDevice) return refuse("a step has too many sources");
        made.target = operand(step.target);
        made.bytes = extent(schedule_.operands[step.target]).bytes;
        made.first_source = static_cast<std::uint32_t>(program_->sources.size());
        made.source_count = step.source_count;
        for (std::uint32_t s = 0; s < step.source_count; ++s) {
          const auto source = operand(step.first_source + s);
          if (!options_.is_direct && source.rank != schedule_.rank &&
              source.buffer != StreamProgram::Buffer::scratch) {
            return refuse("a step reads the input or the output of another rank");
          }
          made.is_scaled |= options_.is_scaled && source.buffer == StreamProgram::Buffer::input;
          program_->sources.push_back(source);
        }
        if (made.is_scaled && (options_.is_direct || step.kind == StepKind::reduce)) {
          return refuse("nobody multiplies the input");
        }
        break;
      }
      case StepKind::put: return add_put(step);
      case StepKind::send:
      case StepKind::recv: return refuse("a step sends or receives");
    }
    program_->steps.push_back(made);
    return {};
  }

  /// If the previous step has computed the bytes of a put, the put becomes a part of that step, so
  /// that the bytes need not be read again. Any other put is a copy.
  Status add_put(const collectives::Step& step) {
    if (!options_.is_direct) return refuse("a step writes the output of another rank");
    if (step.chunk_count != 1) return refuse("a step works on several chunks");
    const auto target = operand(step.target);
    const auto source = operand(step.first_source);
    const std::uint64_t bytes = extent(schedule_.operands[step.target]).bytes;
    if (!program_->steps.empty()) {
      auto& last = program_->steps.back();
      const bool is_result = last.bytes == bytes && last.target.rank == source.rank &&
                             last.target.buffer == source.buffer &&
                             last.target.offset == source.offset;
      if (is_result &&
          (last.kind == StreamProgram::Kind::copy || last.kind == StreamProgram::Kind::reduce)) {
        if (last.put_count == 0) last.first_put = static_cast<std::uint32_t>(program_->puts.size());
        program_->puts.push_back(target);
        ++last.put_count;
        return {};
      }
    }
    StreamProgram::Step made;
    made.kind = StreamProgram::Kind::copy;
    made.bytes = bytes;
    made.target = target;
    made.first_source = static_cast<std::uint32_t>(program_->sources.size());
    made.source_count = 1;
    program_->sources.push_back(source);
    program_->steps.push_back(made);
    return {};
  }

  /// Joins consecutive copies of adjacent memory into one copy. So if the input of a call fits into
  /// scratch, one copy moves all of it there.
  void join_copies() {
    const auto continues = [](const StreamProgram::Operand& a, std::uint64_t bytes,
                              const StreamProgram::Operand& b) {
      return a.rank == b.rank && a.buffer == b.buffer && a.offset + bytes == b.offset;
    };
    std::vector<StreamProgram::Step> joined;
    for (const auto& step : program_->steps) {
      constexpr auto kCopy = StreamProgram::Kind::copy;
      if (!joined.empty() && step.kind == kCopy && joined.back().kind == kCopy) {
        auto& last = joined.back();
        const auto& from = program_->sources[last.first_source];
        const bool are_alike =
            last.is_scaled == step.is_scaled && last.put_count == 0 && step.put_count == 0;
        if (are_alike && continues(last.target, last.bytes, step.target) &&
            continues(from, last.bytes, program_->sources[step.first_source])) {
          last.bytes += step.bytes;
          continue;
        }
      }
      joined.push_back(step);
    }
    program_->steps = std::move(joined);
    for (const auto& step : program_->steps) {
      program_->slice_bytes = std::max(program_->slice_bytes, step.bytes);
    }
  }

  const Schedule& schedule_;
  const StreamProgramOptions& options_;
  const collectives::Layout layout_;
  const std::shared_ptr<StreamProgram> program_;
};

}  // namespace

Result<std::shared_ptr<const StreamProgram>> compile_for_stream(
    const Schedule& schedule, const StreamProgramOptions& options) {
  return StreamCompiler(schedule, options).run();
}

}  // namespace xylem::execution
