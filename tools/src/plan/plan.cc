// SPDX-License-Identifier: Apache-2.0
//
// From a machine and a call to the chosen schedule, proven and printed.
#include "plan/plan.h"

#include "bench/geometry.h"
#include "exit_code.h"
#include "machine.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/rings.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::tools {
namespace {

using collectives::Choice;
using collectives::CostModel;
using collectives::Schedule;
using collectives::Shape;

constexpr std::uint32_t kElementBytes = 4;
/// A proof has the schedules of all ranks in memory at once.
constexpr std::uint64_t kMostProvenSteps = 1'000'000;

/// What the model's constants are and where each comes from.
struct Costs {
  CostModel model;
  std::string local = "assumed";
  std::string remote = "assumed";
};

/// All rails together, as far as their NICs tell.
double rail_rate(const topology::Topology& machine) {
  double sum = 0;
  for (const std::uint32_t nic : topology::assign_nics(machine).rails) {
    double fastest = 0;
    for (const topology::Port& port : machine.nics()[nic].ports) {
      fastest = std::max(fastest, port.rate.value_or(GBps{}).value);
    }
    sum += fastest;
  }
  return sum;
}

Costs costs_of(const topology::Topology& machine, std::uint32_t ranks, std::uint32_t hosts) {
  Costs costs;
  costs.model = collectives::assumed_costs();
  if (const auto rings = topology::plan_rings(machine); rings.bandwidth) {
    costs.model.local.bandwidth_GBps = rings.bandwidth->value;
    costs.local = "latency assumed, bandwidth of the GPU rings";
  }
  if (const double rate = rail_rate(machine); rate > 0) {
    costs.model.remote.bandwidth_GBps = rate;
    costs.remote = "latency assumed, bandwidth of all rails of a host";
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    costs.model.host.push_back(static_cast<std::uint32_t>(std::uint64_t{rank} * hosts / ranks));
  }
  return costs;
}

int refuse(const Status& status) {
  fmt::print(stderr, "xylem plan: {}\n", status.message());
  return kExitUsage;
}

Operation operation_of(collectives::Collective collective) {
  // Both enumerations are spoken of by the same names.
  return *parse_operation(name(collective));
}

void print_costs(const Costs& costs, std::uint32_t hosts) {
  const auto line = [](const char* where, const collectives::LinkCost& cost,
                       const std::string& origin) {
    fmt::print("  {:<24} {:.4g} us + {} ({})\n", where, cost.alpha_us,
               format_bandwidth(GBps{cost.bandwidth_GBps}), origin);
  };
  line("between ranks of a host", costs.model.local, costs.local);
  if (hosts > 1) line("between hosts", costs.model.remote, costs.remote);
  fmt::print("  {:<24} reductions {}, copies {} (assumed, by CPUs)\n", "at a rank",
             format_bandwidth(GBps{costs.model.reduce_GBps}),
             format_bandwidth(GBps{costs.model.copy_GBps}));
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

void print_choice(const Choice& choice) {
  fmt::print("  {:<24} {}, {:.4g} us predicted\n", "chosen", choice.planner->name,
             choice.predicted_us);
  fmt::print("  {:<24} {}\n", "because", choice.reason);
  if (choice.runner_up == nullptr) return;
  fmt::print("  {:<24} {}, {:.4g} us predicted\n", "next", choice.runner_up->name,
             choice.runner_up_us);
}

/// Proves the plan of all ranks, if they are few enough; false if it is wrong.
bool print_proof(const Choice& choice, const Shape& shape, const Schedule& shown) {
  const std::uint64_t steps = std::uint64_t{shown.steps.size()} * shape.ranks;
  if (steps > kMostProvenSteps) {
    fmt::print(
        "  {:<24} no: about {} steps of all ranks are more than the {} that are proven at "
        "once\n",
        "verified", steps, kMostProvenSteps);
    return true;
  }
  std::vector<Schedule> ranks;
  ranks.reserve(shape.ranks);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    ranks.push_back(choice.planner->plan(shape, rank));
  }
  const Status status = collectives::verify(ranks);
  std::uint64_t count = 0;
  for (const Schedule& schedule : ranks) count += schedule.steps.size();
  if (status) {
    fmt::print("  {:<24} {}, {}\n", "verified", counted(shape.ranks, "rank"),
               counted(count, "step"));
  } else {
    fmt::print("  {:<24} WRONG: {}\n", "verified", status.message());
  }
  return status.is_ok();
}

}  // namespace

int plan(const PlanOptions& options) {
  const auto machine = machine_of(options.source);
  if (!machine) return refuse(machine.status());
  const auto gpus = static_cast<std::uint32_t>(machine->gpus().size());
  const std::uint32_t ranks =
      options.ranks > 0 ? options.ranks : std::max(1U, gpus) * options.hosts;
  if (ranks < options.hosts) {
    return refuse(failure(
        Code::invalid_argument,
        fmt::format("{} ranks on {} hosts: each host has at least one", ranks, options.hosts)));
  }
  for (const auto& [flag, rank] :
       {std::pair("--root", options.root), std::pair("--rank", options.rank)}) {
    if (rank < ranks) continue;
    return refuse(failure(Code::invalid_argument,
                          fmt::format("{} {}: ranks are 0 to {}", flag, rank, ranks - 1)));
  }
  const Shape shape{options.collective, ranks, has_root(options.collective) ? options.root : 0};
  const Costs costs = costs_of(*machine, ranks, options.hosts);
  const Geometry sizes = geometry({operation_of(options.collective), options.bytes, kElementBytes,
                                   options.rank, ranks, options.root});
  collectives::Chooser chooser(costs.model);
  const auto choice =
      chooser.choose(shape, std::uint64_t{sizes.count} * kElementBytes, options.algorithm);
  if (!choice) return refuse(choice.status());
  const Schedule shown = choice->planner->plan(shape, options.rank);

  const std::string size =
      sizes.size.value == 0 ? "" : fmt::format(" of {}", format_bytes(sizes.size));
  fmt::print("{}{}, {} on {}\n", name(options.collective), size, counted(ranks, "rank"),
             counted(options.hosts, "host"));
  print_costs(costs, options.hosts);
  print_choice(*choice);
  const bool is_right = print_proof(*choice, shape, shown);
  fmt::print("\n{}", collectives::print(shown));
  return is_right ? kExitRight : kExitWrongResult;
}

}  // namespace xylem::tools
