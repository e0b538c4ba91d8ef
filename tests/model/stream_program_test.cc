// SPDX-License-Identifier: Apache-2.0
//
// Runs stream programs of several consecutive calls for all ranks, in random orders. Each rank
// executes its steps in sequence. Flags are set, awaited and cleared, and buffers are published and
// staged, as in a mesh (execution/src/cuda/cuda_mesh.h). The test checks that a flag is clear when
// it is set.
#include "model/plans.h"
#include "xylem/collectives/planner.h"
#include "xylem/execution/compile_for_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Collective;
using collectives::Counts;
using collectives::Planner;
using collectives::Shape;
using Random = std::mt19937_64;
using Words = std::vector<std::uint32_t>;

constexpr std::uint32_t kWord = sizeof(std::uint32_t);

/// One call with the programs and buffers of all ranks.
struct Call {
  Shape shape;
  std::uint64_t count = 0;
  std::vector<std::shared_ptr<const StreamProgram>> programs;
  std::vector<Words> inputs, outputs;
  /// For each rank, whether peers cannot access its input and its output.
  std::vector<bool> stages_input, stages_output;
};

std::uint64_t words_in(const Call& call, bool is_input) {
  const bool is_small = is_input ? call.shape.collective == Collective::all_gather ||
                                       call.shape.collective == Collective::gather
                                 : call.shape.collective == Collective::reduce_scatter ||
                                       call.shape.collective == Collective::scatter;
  switch (call.shape.collective) {
    case Collective::barrier: return 0;
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast: return call.count;
    default: return is_small ? call.count : call.count * call.shape.ranks;
  }
}

/// The expected word `at` of a rank's output; empty if the rank has no such output.
std::optional<std::uint32_t> expected(const Call& call, std::uint32_t rank, std::uint64_t at) {
  const auto& in = call.inputs;
  const bool is_root = rank == call.shape.root;
  const std::uint64_t part = call.count == 0 ? 0 : at / call.count;
  const auto sum = [&](std::uint64_t index) {
    std::uint32_t total = 0;
    for (const Words& words : in) total += words[index];
    return total;
  };
  switch (call.shape.collective) {
    case Collective::all_reduce: return sum(at);
    case Collective::reduce: return is_root ? std::optional(sum(at)) : std::nullopt;
    case Collective::broadcast: return in[call.shape.root][at];
    case Collective::all_gather: return in[part][at % call.count];
    case Collective::gather:
      return is_root ? std::optional(in[part][at % call.count]) : std::nullopt;
    case Collective::reduce_scatter: return sum(rank * call.count + at);
    case Collective::scatter: return in[call.shape.root][rank * call.count + at];
    case Collective::all_to_all: return in[part][rank * call.count + at % call.count];
    case Collective::barrier: break;
  }
  return std::nullopt;
}

Call make_call(const Planner& planner,
               std::uint32_t ranks,
               std::uint64_t slice_bytes,
               Random& random) {
  Call call;
  const auto root = static_cast<std::uint32_t>(random() % ranks);
  call.shape = {planner.collective, ranks, has_root(planner.collective) ? root : 0};
  call.count = random() % 4 == 0 ? random() % 3 : random() % 300;
  StreamProgramOptions options;
  options.counts = Counts{.count = call.count, .element_bytes = kWord};
  options.slice_bytes = slice_bytes;
  const bool is_staged_anyway = planner.collective == Collective::all_reduce && random() % 4 == 0;
  std::vector<collectives::Schedule> schedules;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    schedules.push_back(planner.plan(call.shape, rank));
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    options.stages_input = is_staged_anyway && rank % 2 == 0;
    auto program = compile_for_stream(schedules, rank, options);
    EXPECT_TRUE(program) << program.status().to_string();
    call.programs.push_back(*program);
    Words input(words_in(call, true));
    for (auto& word : input) word = static_cast<std::uint32_t>(random());
    call.inputs.push_back(std::move(input));
    call.outputs.emplace_back(words_in(call, false), 0xdeadbeef);
    call.stages_input.push_back(options.stages_input || random() % 3 == 0);
    call.stages_output.push_back(random() % 3 == 0);
  }
  return call;
}

class Ranks {
 public:
  Ranks(std::vector<Call>& calls, std::uint32_t ranks) : calls_(calls), ranks_(ranks), at_(ranks) {
    flags_.resize(ranks);
    published_.assign(ranks, std::vector<Published>(ranks));
    staging_.assign(ranks, std::vector<Words>(ranks, Words(kMostWords, 0xbad)));
  }

  /// Runs all programs. Returns the first error, or nothing if the results are correct.
  std::optional<std::string> run(Random& random) {
    for (;;) {
      std::vector<std::uint32_t> able;
      bool is_over = true;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        skip_ended(rank);
        if (at_[rank].call == calls_.size()) continue;
        is_over = false;
        if (is_able(rank)) able.push_back(rank);
      }
      if (is_over) return check();
      if (able.empty()) return "all ranks wait";
      if (auto problem = step(able[random() % able.size()])) return problem;
    }
  }

 private:
  static constexpr std::uint64_t kMostWords = 1024;

  struct At {
    std::size_t call = 0;
    std::uint64_t round = 0;
    std::size_t step = 0;  ///< The step after the last one ends the round.
  };
  /// As PeerCall (execution/src/cuda/kernels/arguments.h).
  struct Published {
    std::uint32_t* input = nullptr;
    std::uint32_t* output = nullptr;
    bool is_staged = false;
  };

  const StreamProgram& program(std::uint32_t rank) const {
    return *calls_[at_[rank].call].programs[rank];
  }
  void skip_ended(std::uint32_t rank) {
    At& at = at_[rank];
    while (at.call < calls_.size() && at.step > program(rank).steps.size()) {
      at.step = 0;
      if (++at.round < program(rank).rounds) return;
      at.round = 0;
      ++at.call;
    }
  }
  std::uint32_t& flag(std::uint32_t to, std::uint32_t from, std::uint8_t channel) {
    return flags_[to][channel * kMostMeshRanks + from];
  }
  bool is_able(std::uint32_t rank) {
    const auto& it = program(rank);
    const At& at = at_[rank];
    if (at.step == it.steps.size()) return true;
    const auto& step = it.steps[at.step];
    return step.kind != StreamProgram::Kind::wait || at.round >= step.rounds ||
           flag(rank, step.peer, step.channel) == 1;
  }
  /// The first word of slice `round` of a chunk.
  std::uint64_t first(std::uint32_t rank, std::uint64_t offset) const {
    return (offset + at_[rank].round * program(rank).slice_bytes) / kWord;
  }
  std::uint64_t words_in_slice(std::uint32_t rank, std::uint64_t bytes) const {
    return program(rank).bytes_in(bytes, at_[rank].round) / kWord;
  }
  /// Copies the slices of the input to staging memory, or those of the output from there.
  void stage(std::uint32_t rank, bool is_input) {
    Call& call = calls_[at_[rank].call];
    if (!(is_input ? call.stages_input : call.stages_output)[rank]) return;
    for (std::uint32_t user = 0; user < ranks_; ++user) {
      const auto& uses = program(rank).uses[user];
      const auto& chunk = is_input ? uses.input : uses.output;
      const std::uint64_t words = words_in_slice(rank, chunk.bytes);
      if (words == 0) continue;
      auto* const place =
          (is_input ? call.inputs : call.outputs)[rank].data() + first(rank, chunk.offset);
      auto* const slice = staging_[rank][user].data();
      std::copy_n(is_input ? place : slice, words, is_input ? slice : place);
    }
  }
  void publish(std::uint32_t rank, std::uint32_t peer) {
    Call& call = calls_[at_[rank].call];
    const auto& uses = program(rank).uses[peer];
    const auto place = [&](bool is_staged, Words& buffer, const StreamProgram::Chunk& chunk) {
      return is_staged ? staging_[rank][peer].data() : buffer.data() + first(rank, chunk.offset);
    };
    const bool in = call.stages_input[rank], out = call.stages_output[rank];
    published_[peer][rank] = {place(in, call.inputs[rank], uses.input),
                              place(out, call.outputs[rank], uses.output),
                              (in && uses.input.bytes > 0) || (out && uses.output.bytes > 0)};
  }
  bool is_staged_here(std::uint32_t rank, const StreamProgram::Operand& operand) const {
    return program(rank).stages_input && operand.buffer == StreamProgram::Buffer::input;
  }
  bool is_staged(std::uint32_t rank, const StreamProgram::Operand& operand) const {
    return operand.rank == rank ? is_staged_here(rank, operand)
                                : published_[rank][operand.rank].is_staged;
  }
  std::uint32_t* place(std::uint32_t rank, const StreamProgram::Operand& operand) {
    Call& call = calls_[at_[rank].call];
    const bool is_input = operand.buffer == StreamProgram::Buffer::input;
    if (operand.rank != rank) {
      const Published& there = published_[rank][operand.rank];
      return is_input ? there.input : there.output;
    }
    if (is_staged_here(rank, operand)) return staging_[rank][rank].data();
    return (is_input ? call.inputs : call.outputs)[rank].data() + first(rank, operand.offset);
  }
  void exchange(std::uint32_t rank, const StreamProgram::Step& step) {
    const auto& it = program(rank);
    std::vector<StreamProgram::Operand> targets(it.puts_of(step).begin(), it.puts_of(step).end());
    targets.push_back(step.target);
    const auto sources = it.sources_of(step);
    const auto staged = [&](const auto& operand) { return is_staged(rank, operand); };
    std::uint64_t words = words_in_slice(rank, step.bytes);
    if (std::ranges::none_of(targets, staged) && std::ranges::none_of(sources, staged)) {
      words = at_[rank].round == 0 ? step.bytes / kWord : 0;
    }
    if (words == 0) return;
    Words result(words, 0);
    for (const auto& source : sources) {
      for (std::uint64_t i = 0; i < words; ++i) result[i] += place(rank, source)[i];
    }
    for (const auto& target : targets) {
      std::copy(result.begin(), result.end(), place(rank, target));
    }
  }
  std::optional<std::string> step(std::uint32_t rank) {
    const auto& it = program(rank);
    At& at = at_[rank];
    if (at.step == 0) stage(rank, true);
    if (at.step++ == it.steps.size()) {
      stage(rank, false);
      return std::nullopt;
    }
    const auto& step = it.steps[at.step - 1];
    switch (step.kind) {
      case StreamProgram::Kind::signal: {
        if (at.round >= step.rounds) break;
        std::uint32_t& word = flag(step.peer, rank, step.channel);
        if (word != 0) return it.algorithm + ": a flag is set again before it was cleared";
        if (step.channel == 0) publish(rank, step.peer);
        word = 1;
        break;
      }
      case StreamProgram::Kind::wait:
        if (at.round < step.rounds) flag(rank, step.peer, step.channel) = 0;
        break;
      case StreamProgram::Kind::copy:
      case StreamProgram::Kind::reduce: exchange(rank, step); break;
    }
    return std::nullopt;
  }
  std::optional<std::string> check() const {
    for (const Call& call : calls_) {
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        for (std::uint64_t i = 0; i < call.outputs[rank].size(); ++i) {
          const auto right = expected(call, rank, i);
          if (right && call.outputs[rank][i] != *right) {
            return call.programs[rank]->algorithm + ": a wrong word at rank " +
                   std::to_string(rank);
          }
        }
      }
    }
    for (const auto& words : flags_) {
      for (const std::uint32_t word : words) {
        if (word != 0) return "a flag stays set";
      }
    }
    return std::nullopt;
  }

  std::vector<Call>& calls_;
  const std::uint32_t ranks_;
  std::vector<At> at_;
  std::vector<std::vector<Published>> published_;  ///< [to][from]
  std::vector<std::vector<Words>> staging_;        ///< [rank][peer]: a slice.
  std::vector<std::array<std::uint32_t, kMeshChannels * kMostMeshRanks>> flags_;
};

TEST(StreamPrograms, AreRightInEveryOrder) {
  const int flag = GTEST_FLAG_GET(random_seed);
  Random random(static_cast<std::uint64_t>(flag != 0 ? flag : 20261126));
  const auto planners = collectives::mapped_planners();
  for (int trial = 0; trial < 400; ++trial) {
    constexpr std::uint32_t kRanks[] = {1, 2, 3, 5, 8};
    const std::uint32_t ranks = kRanks[random() % std::size(kRanks)];
    // With short slices, calls have many rounds.
    const std::uint64_t slice_bytes = trial % 2 == 0 ? 64 : 2048;
    std::vector<Call> calls;
    for (int i = 0; i < 12; ++i) {
      calls.push_back(make_call(planners[random() % planners.size()], ranks, slice_bytes, random));
    }
    const auto problem = Ranks(calls, ranks).run(random);
    ASSERT_FALSE(problem) << *problem << ", trial " << trial << ", " << ranks << " ranks";
  }
}

TEST(StreamPrograms, AreNotMadeOfOtherSchedules) {
  StreamProgramOptions options;
  options.counts = Counts{.count = 10, .element_bytes = kWord};
  for (const Planner& planner : collectives::planners()) {
    std::vector<collectives::Schedule> schedules;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      schedules.push_back(planner.plan({planner.collective, 3, 0}, rank));
    }
    // In the barriers, each rank sends one signal to other ranks, and gets no answer. So the next
    // call could set the flag while it is still set.
    const auto program = compile_for_stream(schedules, 0, options);
    EXPECT_EQ(program.status().code(), Code::unsupported) << planner.name;
  }
}

}  // namespace
}  // namespace xylem::execution
