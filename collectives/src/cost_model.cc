// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/cost_model.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace xylem::collectives {
namespace {

void keep(std::vector<std::uint32_t>& of_rank, std::span<const std::uint32_t> ranks) {
  if (of_rank.empty()) return;
  std::vector<std::uint32_t> kept;
  kept.reserve(ranks.size());
  for (const std::uint32_t rank : ranks) kept.push_back(of_rank[rank]);
  of_rank = std::move(kept);
}

}  // namespace

bool CostModel::shares_cores(std::uint32_t ranks) const {
  if (machine_cores.empty()) return false;
  std::vector<std::uint32_t> runs(machine_cores.size());  // How many ranks run on each machine.
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t at = machine_of(rank);
    if (cores_of(at) > 0 && ++runs[at] > cores_of(at)) return true;
  }
  return false;
}

LinkCost CostModel::between(std::uint32_t a, std::uint32_t b) const {
  if (host.empty() || host[a] == host[b]) return local;
  LinkCost cost = remote;
  cost.alpha_us += remote_send_us + remote_receive_us;
  for (const PortLevel& level : network) {
    if (level.port[a] == level.port[b]) continue;
    cost.bandwidth_GBps = std::min(
        {cost.bandwidth_GBps, level.rate_GBps[level.port[a]], level.rate_GBps[level.port[b]]});
  }
  return cost;
}

CostModel CostModel::of_ranks(std::span<const std::uint32_t> ranks) const {
  CostModel some = *this;
  keep(some.host, ranks);
  keep(some.machine, ranks);
  for (PortLevel& level : some.network) keep(level.port, ranks);
  return some;
}

CostModel assumed_costs() {
  // Fitted to measurements: with this value, two_shot is predicted to overtake recursive_doubling
  // (2 ranks) and one_shot (4 ranks) at the same sizes as in the measurements ("The choice" in
  // bench/results/2026-11-29-history.md).
  constexpr double kStepUs = 0.8;
  CostModel model;
  model.step_us = kStepUs;
  model.local = {1.0, 5.0};
  model.remote = {15.0, 1.2};
  // Assumed for RDMA. Over TCP, jobs measure several microseconds.
  model.remote_send_us = model.remote_receive_us = 0.5;
  model.compute.reduce_GBps = 8.0;
  model.compute.copy_GBps = 8.0;
  return model;
}

CostModel device_costs(CostModel model, std::uint64_t slice_bytes) {
  const bool are_on_several_hosts =
      std::ranges::adjacent_find(model.host, std::not_equal_to<>()) != model.host.end();
  // alpha: one launch, and the write of a word for which the other GPU waits. enqueue: a kernel,
  // and the write of a word that reports its end. Copies and reductions reach nine tenths of a
  // memory of 3 TB/s. The others are usual values.
  model.local = {.alpha_us = 5, .bandwidth_GBps = 400};
  model.compute = {.reduce_GBps = 900,
                   .copy_GBps = 1350,
                   .is_device = true,
                   .enqueue_us = 4,
                   .latency_us = 5,
                   .host_GBps = are_on_several_hosts ? 22.0 : 0.0,
                   .stages_local = false};
  model.slice_bytes = slice_bytes;
  return model;
}

}  // namespace xylem::collectives
