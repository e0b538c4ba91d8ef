// SPDX-License-Identifier: Apache-2.0
#include "plan/sim.h"

#include "bench/bandwidth.h"
#include "bench/geometry.h"
#include "exit_code.h"
#include "plan/job.h"
#include "plan/proof.h"
#include "plan/text.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/pipeline.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <set>

namespace xylem::tools {
namespace {

using collectives::Choice;
using collectives::CostModel;
using collectives::Schedule;
using collectives::Shape;
using collectives::Step;
using collectives::StepKind;

/// If all ranks together have more steps than this, only the ranks of the first host are counted.
constexpr std::uint64_t kMostCountedSteps = 20'000'000;

/// What a plan does to the network.
struct Load {
  double busiest = 0;         ///< The share of the time in which the busiest port sends.
  std::uint32_t peers = 0;    ///< On other hosts, of the rank that has most.
  std::uint64_t scratch = 0;  ///< Bytes of the rank that needs most.
};

/// Adds the bytes that a rank sends through each port, in microseconds of the port.
void add_sends(const CostModel& model,
               const Schedule& schedule,
               std::uint64_t bytes,
               std::vector<std::vector<double>>& busy) {
  const collectives::Layout layout(schedule, {.count = bytes});
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::send || model.are_together(schedule.rank, step.peer)) continue;
    const auto& source = schedule.operands[step.first_source];
    const auto sent =
        static_cast<double>(layout.extent(source.buffer, source.chunk, step.chunk_count).bytes);
    for (std::size_t level = 0; level < model.network.size(); ++level) {
      const auto& [port, rate] = model.network[level];
      if (port[schedule.rank] == port[step.peer]) continue;
      busy[level][port[schedule.rank]] += sent / rate[port[schedule.rank]] / 1e3;
    }
  }
}

Load load_of(const Choice& choice, std::uint64_t bytes) {
  const CostModel& model = *choice.model;
  std::vector<std::vector<double>> busy;
  busy.reserve(model.network.size());
  for (const auto& level : model.network) busy.emplace_back(level.rate_GBps.size());
  const std::uint64_t steps = choice.plan(0).steps.size() * choice.shape.ranks;
  const std::uint32_t counted =
      steps <= kMostCountedSteps
          ? choice.shape.ranks
          : static_cast<std::uint32_t>(std::ranges::count(model.host, model.host.front()));
  Load load;
  for (std::uint32_t rank = 0; rank < counted; ++rank) {
    const Schedule schedule = choice.plan(rank);
    add_sends(model, schedule, bytes, busy);
    load.scratch = std::max(load.scratch, scratch_beyond_rings(schedule, {.count = bytes}));
    std::set<std::uint32_t> peers;
    for (const Step& step : schedule.steps) {
      const bool is_far =
          step.peer != collectives::kNone && !model.are_together(schedule.rank, step.peer);
      if (is_far) peers.insert(step.peer);
    }
    load.peers = std::max(load.peers, static_cast<std::uint32_t>(peers.size()));
  }
  for (const auto& level : busy) {
    for (const double time : level) {
      load.busiest = std::max(load.busiest, time / std::max(choice.predicted_us, 1e-3));
    }
  }
  return load;
}

std::string simulated_text(const Choice& choice) {
  switch (choice.simulated) {
    case collectives::Simulated::all_ranks: return "all ranks";
    case collectives::Simulated::representatives:
      return fmt::format("{} by symmetry", choice.simulated_ranks);
    case collectives::Simulated::fewer_ranks:
      return fmt::format("from {} on", choice.simulated_ranks);
  }
  return {};
}

/// Predicts the call of one size, and prints it. Returns whether the plan is not wrong.
Result<bool> print_row(collectives::Chooser& chooser,
                       const PlanOptions& options,
                       const Shape& shape,
                       Bytes size) {
  const Operation operation = operation_of(options.collective);
  const Geometry sizes = geometry({operation, size, kPlannedElement, 0, shape.ranks, options.root});
  const std::uint64_t bytes = std::uint64_t{sizes.count} * kPlannedElement;
  XYLEM_TRY(Choice choice, chooser.choose(shape, bytes, options.algorithm));
  choice.predicted_us = choice.predict_us(bytes);
  const Load load = load_of(choice, bytes);
  const Proof proof = prove(choice);
  const double busbw = static_cast<double>(sizes.size.value) / choice.predicted_us / 1e3 *
                       bus_factor(operation, shape.ranks);
  const std::string_view verdict = proof.how.empty() ? "no" : proof.outcome ? "yes" : "WRONG";
  fmt::print("  {:>9}  {:<20}{:>10}{:>9.4g}{:>8.1f}{:>7}  {:>10}  {:<17}{}\n",
             format_bytes(sizes.size), choice.planner->name, time_text(choice.predicted_us), busbw,
             load.busiest * 100, load.peers, format_bytes(Bytes{load.scratch}),
             simulated_text(choice), verdict);
  if (!proof.outcome) fmt::print("  {}\n", proof.outcome.message());
  return proof.outcome.is_ok();
}

}  // namespace

int sim(const SimOptions& options) {
  const PlanOptions& call = options.call;
  const auto job = job_of(call);
  if (!job) return refuse("sim", job.status());
  const std::uint32_t ranks = job->ranks();
  if (call.root >= ranks) {
    return refuse("sim", failure(Code::invalid_argument, fmt::format("--root {}: ranks are 0 to {}",
                                                                     call.root, ranks - 1)));
  }
  const Shape shape{call.collective, ranks, has_root(call.collective) ? call.root : 0};
  fmt::print("{}, {} on {}\n", name(call.collective), counted(ranks, "rank"),
             counted(job->hosts(), "host"));
  print_job(*job);
  fmt::print("\n  {:>9}  {:<20}{:>10}{:>9}{:>8}{:>7}  {:>10}  {:<17}{}\n", "size", "algorithm",
             "time", "busbw", "port", "peers", "scratch", "simulated", "proved");
  fmt::print("  {:>9}  {:<20}{:>10}{:>9}{:>8}{:>7}\n", "", "", "", "GB/s", "%", "");
  collectives::Chooser chooser(job->model);
  bool is_right = true;
  for (Bytes size = options.sizes.begin;;) {
    const auto row = print_row(chooser, call, shape, size);
    if (!row) return refuse("sim", row.status());
    is_right = is_right && *row;
    size.value = std::max<std::uint64_t>(size.value, 1);
    if (size.value > options.sizes.end.value / options.factor) break;
    size.value *= options.factor;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "\n  port: the share of the time in which the busiest port of the network sends\n"
      "  peers, scratch: ranks on other hosts, and memory, of the rank that needs most\n"
      "  simulated: all ranks; those that stand for the others; or those of smaller calls, from\n"
      "  which the time is extrapolated\n"
      "  peak memory of this command: {}\n",
      format_bytes(Bytes{static_cast<std::uint64_t>(usage.ru_maxrss) * 1024}));
  return is_right ? kExitRight : kExitWrongResult;
}

}  // namespace xylem::tools
