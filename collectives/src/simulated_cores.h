// SPDX-License-Identifier: Apache-2.0
//
// The cores of the simulated machines. The ranks of a machine are distributed over its cores round
// robin. Ranks that share a core run on it one at a time, and each switch to another rank takes
// time.
#pragma once

#include "simulated_resource.h"
#include "xylem/collectives/cost_model.h"

#include <cstdint>
#include <vector>

namespace xylem::collectives {

class SimulatedCores {
 public:
  SimulatedCores(const CostModel& model, std::uint32_t ranks);

  /// Whether any two ranks share a core.
  bool are_shared() const noexcept { return cores_.size() < seats_.size(); }
  /// Occupies the core of `rank` for `duration` microseconds, as soon as the core is free but not
  /// before `now`. If another rank used the core last, the time of a switch is added. Returns the
  /// time at which the rank has finished.
  double compute(std::uint32_t rank, double now, double duration);
  /// Like compute(), but for reading a message, and without the time of a switch. The rank reads
  /// the message when it next computes, and compute() then counts the switch.
  double read(std::uint32_t rank, double now, double duration);

 private:
  /// Where a rank runs.
  struct Seat {
    std::uint32_t core = 0;  ///< Index into cores_.
    std::uint32_t turn = 0;  ///< The position of the rank among the ranks of the core.
  };
  struct Core : Resource {
    std::uint32_t turns = 0;  ///< The number of ranks on this core.
    std::uint32_t last;       ///< The rank that used this core last, or kNone.
  };

  double switch_us_;
  std::vector<Seat> seats_;  ///< Indexed by rank.
  std::vector<Core> cores_;
};

}  // namespace xylem::collectives
