// SPDX-License-Identifier: Apache-2.0
#include "simulated_cores.h"

#include "xylem/collectives/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

namespace xylem::collectives {

SimulatedCores::SimulatedCores(const CostModel& model, std::uint32_t ranks)
    : switch_us_(model.switch_us), seats_(ranks) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> machines;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    machines[model.machine_of(rank)].push_back(rank);
  }
  for (const auto& [machine, on_it] : machines) {
    const auto many = static_cast<std::uint32_t>(on_it.size());
    const std::uint32_t known = model.cores_of(machine);
    const std::uint32_t own = known == 0 ? many : std::min(known, many);
    const auto first = static_cast<std::uint32_t>(cores_.size());
    for (std::uint32_t i = 0; i < many; ++i) seats_[on_it[i]] = {first + i % own, i / own};
    for (std::uint32_t i = 0; i < own; ++i)
      cores_.push_back({{}, (many - i + own - 1) / own, kNone});
  }
}

double SimulatedCores::compute(std::uint32_t rank, double now, double duration) {
  const Seat& seat = seats_[rank];
  Core& core = cores_[seat.core];
  const std::uint32_t before = std::exchange(core.last, rank);
  if (before != kNone && before != rank) {
    // The core also switches to the ranks between the two, even if they have nothing to do.
    duration += switch_us_ * ((seat.turn + core.turns - seats_[before].turn) % core.turns);
  }
  return core.occupy(now, duration);
}

double SimulatedCores::read(std::uint32_t rank, double now, double duration) {
  return cores_[seats_[rank].core].occupy(now, duration);
}

}  // namespace xylem::collectives
