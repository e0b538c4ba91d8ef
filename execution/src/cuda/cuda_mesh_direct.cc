// SPDX-License-Identifier: Apache-2.0
//
// Direct calls of a mesh: kernels read and write the inputs and outputs of all ranks in place.
#include "cuda/cuda_mesh.h"
#include "xylem/base/check.h"

#include <cstdint>
#include <vector>

namespace xylem::execution::cuda {

// ---- buffers that peers do not reach ----

/// Returns `call`, in which memory that peers can access replaces each buffer that they cannot
/// access. All calls use the same memory, since they run one after the other.
Result<StreamCall> CudaMesh::within_reach(const StreamProgram& program, const StreamCall& call) {
  StreamCall reached = call;
  if (program.input_bytes > 0 && !peers_.is_reached_by_all(call.input)) {
    XYLEM_TRY(reached.input, copy_of(program.input_bytes, input_copies_));
  }
  if (program.output_bytes > 0 && !peers_.is_reached_by_all(call.output)) {
    XYLEM_TRY(reached.output, copy_of(program.output_bytes, output_copies_));
  }
  return reached;
}

/// Returns memory of at least this size: the last element of `copies`. The other elements are too
/// small. They are kept, since streams and graphs may still use them.
Result<std::byte*> CudaMesh::copy_of(std::uint64_t bytes, std::vector<MeshMemories::More>& copies) {
  if (copies.empty() || copies.back().bytes < bytes) {
    XYLEM_TRY(copies.emplace_back(), site_.memories.take_more(bytes));
  }
  return pointer(copies.back().start);
}

// ---- exchanges ----

ExchangeArguments::Operand CudaMesh::operand_of(const StreamProgram::Operand& operand,
                                                const StreamCall& call) const noexcept {
  const bool is_output = operand.buffer == StreamProgram::Buffer::output;
  if (operand.rank != rank_) return {operand.offset, 2 * operand.rank + (is_output ? 1U : 0U)};
  const std::byte* const buffer = is_output ? call.output : call.input;
  return {address(buffer + operand.offset), ExchangeArguments::kHere};
}

Status CudaMesh::enqueue_exchange(const StreamProgram& program,
                                  const StreamProgram::Step& step,
                                  const StreamCall& call) {
  if (step.bytes == 0) return {};
  const bool is_copy = step.kind == StreamProgram::Kind::copy;
  ExchangeArguments arguments;
  std::uint32_t count = 0;
  const auto add = [&](const StreamProgram::Operand& operand) {
    XYLEM_CHECK(count < kMostOperands, count);
    arguments.operands[count++] = operand_of(operand, call);
  };
  const auto sources = program.sources_of(step);
  const auto target = operand_of(step.target, call);
  const auto source = operand_of(sources[0], call);
  // In a call in place, a copy may have the same source and target.
  const bool is_void = is_copy && target.buffer == source.buffer && target.place == source.place;
  if (!is_void) add(step.target);
  for (const auto& put : program.puts_of(step)) add(put);
  arguments.target_count = count;
  if (count == 0) return {};
  for (const auto& each : sources) add(each);
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.count = step.bytes / program.element_bytes;
  arguments.divisor = is_copy ? 1 : program.divisor;
  arguments.peer_calls = peers_.calls_written_to(rank_);
  arguments.call = program.call;
  arguments.ended = peers_.ended_blocks();
  return batch_.add_exchange(is_copy ? program.copy : program.reduce, step.bytes, arguments);
}

}  // namespace xylem::execution::cuda
