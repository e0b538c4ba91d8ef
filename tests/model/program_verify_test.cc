// SPDX-License-Identifier: Apache-2.0
//
// The programs compiled from every plan are proved, for 1 to 64 ranks and some larger numbers. The
// verifier is tested with programs whose fusions are changed: if it accepts such a program, a call
// over shared memory must have the right result.
#include "model/plans.h"
#include "support/engine_call.h"
#include "support/engine_ranks.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/staging.h"
#include "xylem/execution/verify_program.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Planner;
using collectives::Shape;
using collectives::StepKind;
using Programs = std::vector<std::shared_ptr<const Program>>;

constexpr std::uint64_t kSlice = 1024;
constexpr std::uint32_t kWindow = 4;

/// Which ranks have their buffers on a device.
enum class OnDevice { none, all, odd };

/// Compiles programs as the runtime does: if a call is scaled, its input is staged. If a rank is on
/// a device, the messages that it receives from ranks of its host are staged.
Programs compile_all(const EngineCall& call,
                     const Shape& shape,
                     OnDevice which = OnDevice::none,
                     std::uint32_t device_window = execution::device_window(kWindow)) {
  Programs programs;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    const bool is_on_device = which == OnDevice::all || (which == OnDevice::odd && rank % 2 == 1);
    collectives::Staging staging{.input = call.is_scaled};
    if (is_on_device) staging.receives.assign(shape.ranks, true);
    staging.separates_scratch = is_on_device;
    const auto plan = stage(call.planner->plan(shape, rank), staging);
    programs.push_back(call.program(
        plan, {.slice_bytes = kSlice,
               .window = is_on_device ? device_window : kWindow,
               .fusion = is_on_device ? Fusion::views : Fusion::all,
               .has_safe_views = !call.planner->swaps_data,
               .device_sends = std::vector<bool>(is_on_device ? shape.ranks : 0, true)}));
  }
  return programs;
}

Status verify(const Programs& programs) {
  std::vector<const Program*> ranks;
  for (const auto& program : programs) ranks.push_back(program.get());
  return verify_program(ranks);
}

// ---- every plan ----

class EveryPlanner : public testing::TestWithParam<Planner> {
 protected:
  /// The largest number of ranks for which all variants are tested.
  static constexpr std::uint32_t kFew = 16;

  /// Tests chunks of one slice, of a window of slices, of one slice more, and of three windows, and
  /// a count so small that some chunks are empty.
  void expect_proven(std::uint32_t ranks) const {
    const Planner& planner = GetParam();
    for (const std::uint32_t root : model_roots(ranks)) {
      for (const Shape& shape : collectives::model::shapes(planner, ranks, root)) {
        for (const std::uint64_t slices : slices_of_chunks(ranks)) {
          const std::uint64_t chunk = slices * kSlice / sizeof(std::uint32_t);
          for (const bool is_scaled : {false, true}) {
            if (is_scaled && ranks > kFew && ranks != 64) continue;
            const EngineCall call{&planner, ranks, std::max<std::uint64_t>(1, chunk * ranks),
                                  is_scaled};
            for (const OnDevice which : {OnDevice::none, OnDevice::all, OnDevice::odd}) {
              if (which == OnDevice::odd && ranks > kFew) continue;
              if (which == OnDevice::all && ranks > kFew && (slices == 0 || is_scaled)) continue;
              const Status outcome = verify(compile_all(call, shape, which));
              ASSERT_TRUE(outcome) << collectives::model::title(planner, shape) << ", " << slices
                                   << " slices" << (is_scaled ? ", scaled" : "") << ", devices "
                                   << static_cast<int>(which) << ": " << outcome.to_string();
            }
          }
        }
      }
    }
  }
  static std::vector<std::uint64_t> slices_of_chunks(std::uint32_t ranks) {
    if (ranks > kFew) return {0, 3 * kWindow};
    return {0, 1, kWindow, kWindow + 1, 3 * kWindow};
  }
  static std::set<std::uint32_t> model_roots(std::uint32_t ranks) {
    return collectives::model::roots(GetParam().collective, ranks);
  }
};

TEST_P(EveryPlanner, IsProvenAsAProgramFor1To64Ranks) {
  for (const std::uint32_t ranks : collectives::model::ranks_to_prove(64)) expect_proven(ranks);
}

TEST_P(EveryPlanner, IsProvenAsAProgramFor127And128Ranks) {
  expect_proven(127);
  expect_proven(128);
}

// Devices have windows of their own: two large slices, or as many as announcements allow.
TEST_P(EveryPlanner, IsProvenWithTheWindowsOfDevices) {
  for (const std::uint32_t window : {2, 5, 16}) {
    for (const std::uint32_t ranks : {1, 2, 3, 5, 8}) {
      const EngineCall call{&GetParam(), ranks,
                            3 * window * kSlice / sizeof(std::uint32_t) * ranks};
      const Status outcome =
          verify(compile_all(call, {GetParam().collective, ranks}, OnDevice::all, window));
      EXPECT_TRUE(outcome) << ranks << " ranks, window " << window << ": " << outcome.to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registered,
                         EveryPlanner,
                         testing::ValuesIn(collectives::planners().begin(),
                                           collectives::planners().end()),
                         collectives::model::label);

// If a rank sends scratch that contains computed data, this scratch must be in the memory of its
// device, since peers read it there. Scratch for data that is received and forwarded unchanged may
// be on the host.
TEST_P(EveryPlanner, ComputesForOthersInTheMemoryOfItsDevice) {
  if (!reduces(GetParam().collective)) return;
  for (const std::uint32_t ranks : {1, 2, 3, 5, 8}) {
    const Shape shape{GetParam().collective, ranks};
    const EngineCall call{&GetParam(), ranks, 3 * kWindow * kSlice / sizeof(std::uint32_t) * ranks};
    for (const auto& program : compile_all(call, shape, OnDevice::all)) {
      bool uses_scratch = false;
      for (const ProgramStep& step : program->steps) {
        if (step.kind != StepKind::send) continue;
        const OperandLayout& source = program->sources[step.first_source];
        EXPECT_TRUE(source.buffer != Buffer::scratch || source.base == kDeviceScratch);
        uses_scratch = uses_scratch || source.base == kDeviceScratch;
      }
      EXPECT_LE(uses_scratch, program->device_scratch_bytes() > 0);
    }
  }
}

// A call on devices reads as many messages in place (by views) as with scratch on the host.
TEST_P(EveryPlanner, KeepsItsViewsWithScratchOnTheDevice) {
  for (const std::uint32_t ranks : {2, 3, 5, 8}) {
    const Shape shape{GetParam().collective, ranks};
    const EngineCall call{&GetParam(), ranks, 3 * kWindow * kSlice / sizeof(std::uint32_t) * ranks};
    collectives::Staging staging;
    staging.receives.assign(ranks, true);
    staging.separates_scratch = true;
    const auto programs = compile_all(call, shape, OnDevice::all);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto on_host = call.program(stage(GetParam().plan(shape, rank), staging),
                                        {.slice_bytes = kSlice,
                                         .window = device_window(kWindow),
                                         .fusion = Fusion::views,
                                         .has_safe_views = !GetParam().swaps_data});
      EXPECT_EQ(programs[rank]->view_count, on_host->view_count) << ranks << ", " << rank;
    }
  }
}

// The flag names the planners whose ranks would wait for each other, and no others.
TEST_P(EveryPlanner, SaysWhetherItsRanksSwapData) {
  Planner other = GetParam();
  other.swaps_data = false;
  bool is_safe = true;
  for (const std::uint32_t ranks : {2, 3, 5, 8}) {
    const EngineCall call{&other, ranks, 3 * kWindow * kSlice / sizeof(std::uint32_t) * ranks};
    is_safe =
        is_safe && verify(compile_all(call, {other.collective, ranks}, OnDevice::all)).is_ok();
  }
  EXPECT_EQ(is_safe, !GetParam().swaps_data);
}

// ---- mutants ----

enum class Mutation {
  /// A receive loses its view, gets the view of another receive, or gets a view although it had
  /// none.
  view_of_receive,
  view_of_source,  ///< A source is read from another view, or from no view.
  view_wait,       ///< A receive does not wait until its view has been read.
  cast_of_step,    ///< A step leaves its cast, changes to another cast, or joins a cast.
  cast_of_send,    ///< A send of a cast is replaced by another send.
  cast_copy,       ///< A cast loses its copy, or gets another copy.
  unawaited,       ///< The flag of an unawaited step is inverted.
  exchange,        ///< The flag of an exchange is inverted.
  stay,            ///< Inverts the flag by which messages stay with their sender.
};
constexpr std::array kMutations = {
    Mutation::view_of_receive, Mutation::view_of_source, Mutation::view_wait,
    Mutation::cast_of_step,    Mutation::cast_of_send,   Mutation::cast_copy,
    Mutation::unawaited,       Mutation::exchange,       Mutation::stay};
constexpr std::array kNames = {"view_of_receive", "view_of_source", "view_wait",
                               "cast_of_step",    "cast_of_send",   "cast_copy",
                               "unawaited",       "exchange",       "stay"};

using Random = std::mt19937_64;

/// A random value below `count`, or kNone.
std::uint32_t draw_or_none(std::uint64_t count, Random& random) {
  const auto drawn = static_cast<std::uint32_t>(random() % (count + 1));
  return drawn == count ? collectives::kNone : drawn;
}

/// Returns a random step for which `accepts` returns true, or kNone if there is none.
template <typename Accepts>
StepId draw_step(const Program& program, Random& random, const Accepts& accepts) {
  std::vector<StepId> found;
  for (StepId id = 0; id < program.steps.size(); ++id) {
    if (program.steps[id].bytes > 0 && accepts(program.steps[id])) found.push_back(id);
  }
  return found.empty() ? collectives::kNone : found[random() % found.size()];
}

void remove_lag(Program& program, Random& random) {
  std::vector<std::pair<StepId, std::uint32_t>> found;
  for (StepId id = 0; id < program.steps.size(); ++id) {
    const ProgramStep& step = program.steps[id];
    for (std::uint32_t e = step.first_edge; e < step.first_edge + step.edge_count; ++e) {
      if (program.edges[e].kind == collectives::EdgeKind::lag) found.emplace_back(id, e);
    }
  }
  if (found.empty()) return;
  const auto [id, edge] = found[random() % found.size()];
  ProgramStep& step = program.steps[id];
  std::swap(program.edges[edge], program.edges[step.first_edge + --step.edge_count]);
}

void mutate(Program& program, Mutation mutation, Random& random) {
  const auto is = [](collectives::StepKind kind) {
    return [kind](const ProgramStep& step) { return step.kind == kind; };
  };
  const auto any = [](const ProgramStep& /*step*/) { return true; };
  const auto draw_view = [&] {
    const std::uint32_t drawn = draw_or_none(program.view_count / program.window, random);
    return drawn == collectives::kNone ? drawn : drawn * program.window;
  };
  switch (mutation) {
    case Mutation::view_of_receive: {
      const StepId id = draw_step(program, random, is(collectives::StepKind::recv));
      if (id != collectives::kNone) program.steps[id].target.view = draw_view();
      break;
    }
    case Mutation::view_of_source:
      if (program.sources.empty()) break;
      program.sources[random() % program.sources.size()].view = draw_view();
      break;
    case Mutation::view_wait: remove_lag(program, random); break;
    case Mutation::cast_of_step: {
      const StepId id = draw_step(program, random, any);
      if (id == collectives::kNone) break;
      program.steps[id].cast = draw_or_none(program.casts.size(), random);
      break;
    }
    case Mutation::cast_of_send: {
      const StepId id = draw_step(program, random, is(collectives::StepKind::send));
      if (id == collectives::kNone || program.cast_sends.empty()) break;
      program.cast_sends[random() % program.cast_sends.size()] = id;
      break;
    }
    case Mutation::cast_copy: {
      if (program.casts.empty()) break;
      const bool is_none = random() % 2 == 0;
      program.casts[random() % program.casts.size()].copy =
          is_none ? collectives::kNone : draw_step(program, random, any);
      break;
    }
    case Mutation::unawaited: {
      const StepId id = draw_step(program, random, any);
      if (id != collectives::kNone) program.steps[id].is_unawaited ^= true;
      break;
    }
    case Mutation::exchange: program.is_exchange ^= true; break;
    case Mutation::stay: program.in_place = static_cast<transport::InPlace>(random() % 3); break;
  }
}

/// True if two programs are equal in all fields that mutations change.
bool same_fusions(const Program& a, const Program& b) {
  const auto same_step = [](const ProgramStep& x, const ProgramStep& y) {
    return x.target.view == y.target.view && x.cast == y.cast && x.is_unawaited == y.is_unawaited &&
           x.edge_count == y.edge_count;
  };
  const auto same_view = [](const OperandLayout& x, const OperandLayout& y) {
    return x.view == y.view;
  };
  const auto same_cast = [](const Cast& x, const Cast& y) { return x.copy == y.copy; };
  return std::ranges::equal(a.steps, b.steps, same_step) &&
         std::ranges::equal(a.sources, b.sources, same_view) &&
         std::ranges::equal(a.casts, b.casts, same_cast) && a.cast_sends == b.cast_sends &&
         a.is_exchange == b.is_exchange && a.in_place == b.in_place;
}

/// Returns the programs of a call after a mutation of one of them, or the same mutation of all.
/// Returns nothing if the mutation changed nothing.
std::optional<Programs> mutant_of(const Programs& programs, Mutation mutation, Random& random) {
  // If the messages of all ranks stay with their senders, ranks can wait for each other in a
  // circle.
  const bool is_everywhere = mutation == Mutation::stay && random() % 2 == 0;
  const std::size_t chosen = random() % programs.size();
  const Random drawn = random;
  bool has_changed = false;
  Programs mutant = programs;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    if (rank != chosen && !is_everywhere) continue;
    random = drawn;
    auto changed = std::make_shared<Program>(*programs[rank]);
    mutate(*changed, mutation, random);
    has_changed = has_changed || !same_fusions(*changed, *programs[rank]);
    mutant[rank] = std::move(changed);
  }
  return has_changed ? std::optional(std::move(mutant)) : std::nullopt;
}

/// Ranks that share memory.
struct SharedRanks {
  explicit SharedRanks(std::uint32_t count) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      auto transport = transport::make_shm({.endpoints = count});
      EXPECT_TRUE(transport) << transport.status().to_string();
      // Makes all messages stay with their sender whose program allows it.
      (*transport)->views()->pull_from(1);
      ranks.emplace_back(rank, std::move(*transport));
      // Without eviction. The turns of a deadlocked call end long before this delay.
      ranks.back().engine.set_eviction_delay(std::chrono::hours(1));
      // Odd ranks write all outputs with non-temporal stores.
      if (rank % 2 == 1) ranks.back().engine.set_non_temporal_from(1);
    }
    for (Rank& rank : ranks) rank.connect(ranks);
  }
  SharedRanks(const SharedRanks&) = delete;
  SharedRanks& operator=(const SharedRanks&) = delete;
  ~SharedRanks() {
    for (Rank& rank : ranks) rank.disconnect();
  }

  /// Runs a call. Returns the first error, or nothing if the call is correct.
  std::optional<std::string> run(const EngineCall& call, const Programs& programs) {
    std::vector<Words> inputs, outputs;
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
      Words& input = inputs.emplace_back(call.elements(rank, Buffer::input));
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(rank, i);
      outputs.emplace_back(call.elements(rank, Buffer::output));
    }
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
      ranks[rank].start(programs[rank], sequence, inputs[rank], outputs[rank], call.factor());
    }
    ++sequence;
    if (!turn_until_ended(ranks, /*most_turns=*/20'000)) return "it does not end";
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
      const Status& outcome = ranks[rank].execution.outcome;
      if (!outcome) return std::string(outcome.message());
      for (std::size_t i = 0; i < outputs[rank].size(); ++i) {
        if (outputs[rank][i] != call.expected(rank, i)) {
          return "wrong at rank " + std::to_string(rank) + ", element " + std::to_string(i);
        }
      }
    }
    return std::nullopt;
  }

  std::deque<Rank> ranks;
  std::uint64_t sequence = 0;
};

class Mutants : public testing::TestWithParam<Mutation> {};

TEST_P(Mutants, AreRejectedOrRight) {
  constexpr int kMutants = 300;
  Random random(20261124 + static_cast<std::uint64_t>(GetParam()));
  std::map<std::uint32_t, std::unique_ptr<SharedRanks>> worlds;  // The key is the number of ranks.
  std::map<std::string, int> rejected;  // The key is the claim that the verifier refuted.
  int made = 0, harmless = 0;
  for (std::size_t turn = 0; made < kMutants && turn < 50'000; ++turn) {
    const auto planners = collectives::planners();
    const Planner& planner = planners[turn % planners.size()];
    constexpr std::uint32_t kRanks[] = {2, 3, 4, 5};
    const std::uint32_t ranks = kRanks[random() % std::size(kRanks)];
    const std::uint64_t counts[] = {5, 700, ranks * 256ULL * (1 + random() % (3 * kWindow))};
    const EngineCall call{&planner, ranks, counts[random() % std::size(counts)],
                          /*is_scaled=*/random() % 3 == 0};
    const auto programs =
        compile_all(call, {planner.collective, ranks, call.root(), call.per_host});
    const auto mutant = mutant_of(programs, GetParam(), random);
    if (!mutant) continue;
    ++made;
    if (const Status outcome = verify(*mutant); !outcome) {
      EXPECT_EQ(outcome.code(), Code::bad_schedule);
      ++rejected[std::string(outcome.message().substr(0, outcome.message().find(':')))];
      continue;
    }
    ++harmless;
    auto& world = worlds[ranks];
    if (world == nullptr) world = std::make_unique<SharedRanks>(ranks);
    const auto problem = world->run(call, *mutant);
    ASSERT_FALSE(problem) << name(planner.collective) << " " << planner.name << ", " << ranks
                          << " ranks, " << call.count << " elements: " << *problem;
  }
  std::string text = std::to_string(made) + " mutants, " + std::to_string(harmless) + " harmless";
  for (const auto& [claim, count] : rejected) {
    text += ", " + std::to_string(count) + " rejected by " + claim;
  }
  std::cout << kNames[static_cast<std::size_t>(GetParam())] << ": " << text << "\n";
  EXPECT_EQ(made, kMutants);
  // If every mutant of a class is harmless, the test has not shown that the verifier rejects this
  // class.
  EXPECT_GT(made, harmless);
}

INSTANTIATE_TEST_SUITE_P(Classes, Mutants, testing::ValuesIn(kMutations), [](const auto& tested) {
  return kNames[static_cast<std::size_t>(tested.param)];
});

}  // namespace
}  // namespace xylem::execution
