// SPDX-License-Identifier: Apache-2.0
//
// Runs stream programs of several consecutive calls for all ranks, in random orders. Each rank
// executes its steps in sequence. Flags are set, awaited and cleared as in a mesh
// (execution/src/cuda/cuda_mesh.h). The test checks that a flag is clear when it is set.
#include "model/plans.h"
#include "xylem/collectives/planner.h"
#include "xylem/execution/compile_for_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
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
               std::uint64_t scratch_bytes,
               Random& random) {
  Call call;
  const auto root = static_cast<std::uint32_t>(random() % ranks);
  call.shape = {planner.collective, ranks, has_root(planner.collective) ? root : 0};
  call.count = random() % 4 == 0 ? random() % 3 : random() % 300;
  StreamProgramOptions options;
  options.counts = Counts{.count = call.count, .element_bytes = kWord};
  options.scratch_bytes = scratch_bytes;
  options.is_direct = planner.name == "mapped_direct";
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto chunks = planner.plan(call.shape, rank).scratch.size();
    options.scratch_chunks = std::max(options.scratch_chunks, static_cast<std::uint32_t>(chunks));
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto program = compile_for_stream(planner.plan(call.shape, rank), options);
    EXPECT_TRUE(program) << program.status().to_string();
    call.programs.push_back(*program);
    Words input(words_in(call, true));
    for (auto& word : input) word = static_cast<std::uint32_t>(random());
    call.inputs.push_back(std::move(input));
    call.outputs.emplace_back(words_in(call, false), 0xdeadbeef);
  }
  return call;
}

class Ranks {
 public:
  Ranks(std::vector<Call>& calls, std::uint32_t ranks, std::uint64_t scratch_bytes)
      : calls_(calls), ranks_(ranks), at_(ranks) {
    for (auto& memory : scratch_) memory.assign(scratch_bytes / kWord, 0xbad);
    flags_.resize(ranks);
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
  struct At {
    std::size_t call = 0;
    std::uint64_t round = 0;
    std::size_t step = 0;
  };

  const StreamProgram& program(std::uint32_t rank) const {
    return *calls_[at_[rank].call].programs[rank];
  }
  void skip_ended(std::uint32_t rank) {
    At& at = at_[rank];
    while (at.call < calls_.size()) {
      const auto& it = program(rank);
      if (at.round < it.rounds && at.step < it.steps.size()) return;
      at.step = 0;
      if (at.round + 1 < it.rounds) {
        ++at.round;
        continue;
      }
      at.round = 0;
      ++at.call;
    }
  }
  std::uint32_t& flag(std::uint32_t to, std::uint32_t from, std::uint8_t channel) {
    return flags_[to][channel * kMostMeshRanks + from];
  }
  bool is_able(std::uint32_t rank) {
    const auto& step = program(rank).steps[at_[rank].step];
    return step.kind != StreamProgram::Kind::wait || flag(rank, step.peer, step.channel) == 1;
  }
  std::uint32_t* place(std::uint32_t rank, const StreamProgram::Operand& operand) {
    Call& call = calls_[at_[rank].call];
    const std::uint64_t offset = program(rank).offset_in(operand, at_[rank].round) / kWord;
    switch (operand.buffer) {
      case StreamProgram::Buffer::input: return call.inputs[operand.rank].data() + offset;
      case StreamProgram::Buffer::output: return call.outputs[operand.rank].data() + offset;
      case StreamProgram::Buffer::scratch: break;
    }
    return scratch_[operand.rank].data() + offset;
  }
  std::optional<std::string> step(std::uint32_t rank) {
    const auto& it = program(rank);
    const auto& step = it.steps[at_[rank].step];
    switch (step.kind) {
      case StreamProgram::Kind::signal: {
        std::uint32_t& word = flag(step.peer, rank, step.channel);
        if (word != 0) return it.algorithm + ": a flag is set again before it was cleared";
        word = 1;
        break;
      }
      case StreamProgram::Kind::wait: flag(rank, step.peer, step.channel) = 0; break;
      case StreamProgram::Kind::copy:
      case StreamProgram::Kind::reduce: {
        const std::uint64_t words = it.bytes_in(step, at_[rank].round) / kWord;
        Words result(words, 0);
        for (const auto& source : it.sources_of(step)) {
          for (std::uint64_t i = 0; i < words; ++i) result[i] += place(rank, source)[i];
        }
        std::copy(result.begin(), result.end(), place(rank, step.target));
        for (const auto& put : it.puts_of(step)) {
          std::copy(result.begin(), result.end(), place(rank, put));
        }
        break;
      }
    }
    ++at_[rank].step;
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
  std::vector<Words> scratch_ = std::vector<Words>(ranks_);
  std::vector<std::array<std::uint32_t, kMeshChannels * kMostMeshRanks>> flags_;
};

TEST(StreamPrograms, AreRightInEveryOrder) {
  const int flag = GTEST_FLAG_GET(random_seed);
  Random random(static_cast<std::uint64_t>(flag != 0 ? flag : 20261126));
  std::vector<Planner> planners;
  for (const auto some : {collectives::mapped_planners(), collectives::mapped_direct_planners()}) {
    planners.insert(planners.end(), some.begin(), some.end());
  }
  for (int trial = 0; trial < 400; ++trial) {
    constexpr std::uint32_t kRanks[] = {1, 2, 3, 5, 8};
    const std::uint32_t ranks = kRanks[random() % std::size(kRanks)];
    // With little scratch, calls have many rounds.
    const std::uint64_t scratch_bytes = trial % 2 == 0 ? 64 * (ranks + 1) : 64 << 10;
    std::vector<Call> calls;
    for (int i = 0; i < 12; ++i) {
      calls.push_back(
          make_call(planners[random() % planners.size()], ranks, scratch_bytes, random));
    }
    const auto problem = Ranks(calls, ranks, scratch_bytes).run(random);
    ASSERT_FALSE(problem) << *problem << ", trial " << trial << ", " << ranks << " ranks";
  }
}

TEST(StreamPrograms, AreNotMadeOfOtherSchedules) {
  StreamProgramOptions options;
  options.scratch_bytes = 1 << 10;
  options.counts = Counts{.count = 10, .element_bytes = kWord};
  for (const Planner& planner : collectives::planners()) {
    const Shape shape{planner.collective, 3, 0};
    if (planner.collective == Collective::barrier) continue;
    const auto program = compile_for_stream(planner.plan(shape, 0), options);
    EXPECT_EQ(program.status().code(), Code::unsupported) << planner.name;
  }
  for (const Planner& planner : collectives::mapped_direct_planners()) {
    const auto program = compile_for_stream(planner.plan({planner.collective, 3, 0}, 0), options);
    EXPECT_EQ(program.status().code(), Code::unsupported) << planner.name;
  }
  // In this plan, each rank sends one signal to every other rank, and gets no answer. So the next
  // call could set the flag while it is still set.
  const auto* const barrier = collectives::find_planner(Collective::barrier, "direct");
  const auto program = compile_for_stream(barrier->plan({Collective::barrier, 3, 0}, 0), options);
  EXPECT_EQ(program.status().code(), Code::unsupported);
}

}  // namespace
}  // namespace xylem::execution
