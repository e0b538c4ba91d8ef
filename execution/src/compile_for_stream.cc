// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/compile_for_stream.h"

#include "xylem/execution/compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Buffer;
using collectives::Schedule;
using collectives::StepKind;

/// Compiles one Schedule into one StreamProgram. run() calls the other functions in order.
class StreamCompiler {
 public:
  StreamCompiler(std::span<const Schedule> schedules,
                 std::uint32_t rank,
                 const StreamProgramOptions& options)
      : schedules_(schedules),
        schedule_(schedules[rank]),
        options_(options),
        layout_(schedule_, options.counts),
        bytes_used_(schedules.size()),
        program_(std::make_shared<StreamProgram>()) {}

  Result<std::shared_ptr<const StreamProgram>> run() {
    program_->algorithm = schedule_.algorithm;
    program_->slice_bytes = options_.slice_bytes;
    program_->element_bytes = options_.counts.element_bytes;
    program_->divisor = options_.divisor;
    program_->call = options_.call;
    program_->has_private_counts =
        !options_.counts.input_counts.empty() && !options_.counts.output_counts.empty();
    program_->reduce = options_.reduce;
    program_->copy = options_.copy;
    program_->stages_input = options_.stages_input;
    program_->scale = options_.scale;
    if (options_.slice_bytes == 0) return refuse("there is too little staging memory");
    XYLEM_TRY(check_signals());
    XYLEM_TRY(find_uses());
    for (const collectives::Step& step : schedule_.steps) XYLEM_TRY(add(step));
    program_->rounds = slices_of(program_->uses[rank()].input.bytes);
    for (auto& step : program_->steps) {
      set_rounds(step);
      program_->bytes += step.bytes;
    }
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

  /// Finds which chunks of this rank's buffers each rank uses.
  Status find_uses() {
    program_->uses.resize(schedules_.size());
    for (const Schedule& user : schedules_) {
      for (const auto& operand : user.operands) {
        const bool is_own = user.rank == rank();
        if (operand.rank != rank() || operand.buffer == Buffer::scratch) continue;
        if (is_own && (!options_.stages_input || operand.buffer == Buffer::output)) continue;
        auto& uses = program_->uses[user.rank];
        auto& chunk = operand.buffer == Buffer::input ? uses.input : uses.output;
        const auto extent = layout_.extent(operand.buffer, operand.chunk, 1);
        if (chunk.bytes > 0 && extent.bytes > 0 && chunk.offset != extent.offset) {
          return refuse("a rank uses several chunks of a buffer");
        }
        if (extent.bytes > 0) chunk = {extent.offset, extent.bytes};
      }
    }
    return {};
  }

  /// An operand of a step that moves `bytes`.
  Result<StreamProgram::Operand> operand(std::uint32_t index, std::uint64_t bytes) {
    const auto& it = schedule_.operands[index];
    if (it.buffer == Buffer::scratch) return refuse("it uses scratch");
    const bool is_own = it.rank == rank();
    if (!is_own) bytes_used_[it.rank] = std::max(bytes_used_[it.rank], bytes);
    return StreamProgram::Operand{
        it.rank,
        it.buffer == Buffer::input ? StreamProgram::Buffer::input : StreamProgram::Buffer::output,
        is_own ? layout_.extent(it.buffer, it.chunk, 1).offset : 0};
  }

  /// The size of a chunk of this rank, in bytes.
  Result<std::uint64_t> size_of(const collectives::Operand& it) const {
    if (it.buffer == Buffer::scratch) return refuse("it uses scratch");
    if (it.rank != rank()) return refuse("a step moves data between two other ranks");
    return layout_.extent(it.buffer, it.chunk, 1).bytes;
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
        if (step.source_count > kMostMeshRanks) return refuse("a step has too many sources");
        XYLEM_TRY(made.bytes, size_of(schedule_.operands[step.target]));
        XYLEM_TRY(made.target, operand(step.target, made.bytes));
        made.first_source = static_cast<std::uint32_t>(program_->sources.size());
        made.source_count = step.source_count;
        for (std::uint32_t s = 0; s < step.source_count; ++s) {
          XYLEM_TRY(program_->sources.emplace_back(), operand(step.first_source + s, made.bytes));
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
    if (step.chunk_count != 1) return refuse("a step works on several chunks");
    XYLEM_TRY(const auto bytes, size_of(schedule_.operands[step.first_source]));
    XYLEM_TRY(const auto target, operand(step.target, bytes));
    XYLEM_TRY(const auto source, operand(step.first_source, bytes));
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

  /// A rank that has signalled a peer on channel 0, and then waits for it on channel 1, is used by
  /// the peer. The opposite steps belong to a use of the peer's buffers.
  void set_rounds(StreamProgram::Step& step) const {
    using Kind = StreamProgram::Kind;
    if (step.kind != Kind::signal && step.kind != Kind::wait) return;
    const auto& uses = program_->uses[step.peer];
    const bool is_used = (step.kind == Kind::signal) == (step.channel == 0);
    const std::uint64_t bytes =
        is_used ? std::max(uses.input.bytes, uses.output.bytes) : bytes_used_[step.peer];
    step.rounds = slices_of(bytes);
    program_->rounds = std::max(program_->rounds, step.rounds);
  }

  /// The number of rounds for a chunk.
  std::uint64_t slices_of(std::uint64_t bytes) const noexcept {
    const std::uint64_t slice = options_.slice_bytes;
    return std::max<std::uint64_t>(bytes / slice + (bytes % slice == 0 ? 0 : 1), 1);
  }
  std::uint32_t rank() const noexcept { return schedule_.rank; }

  const std::span<const Schedule> schedules_;
  const Schedule& schedule_;
  const StreamProgramOptions& options_;
  const collectives::Layout layout_;
  /// The size of the longest chunk that this rank uses of each other rank, in bytes.
  std::vector<std::uint64_t> bytes_used_;
  const std::shared_ptr<StreamProgram> program_;
};

}  // namespace

Result<std::shared_ptr<const StreamProgram>> compile_for_stream(
    std::span<const Schedule> schedules, std::uint32_t rank, const StreamProgramOptions& options) {
  return StreamCompiler(schedules, rank, options).run();
}

}  // namespace xylem::execution
