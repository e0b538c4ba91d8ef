// SPDX-License-Identifier: Apache-2.0
//
// The cores of the simulated hosts. The ranks of a host are distributed over its cores in turn.
// Ranks that share a core take turns on it, and each switch to another rank takes time.
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
  /// Lets a rank compute for this long, after a switch to it if another rank used its core last.
  /// Returns when it is done.
  double compute(std::uint32_t rank, double now, double duration);
  /// The same for the reading of a message, which a rank does when it continues: the switch to it
  /// is counted there.
  double read(std::uint32_t rank, double now, double duration);

 private:
  /// The place of a rank.
  struct Seat {
    std::uint32_t core = 0;
    std::uint32_t turn = 0;  ///< Its place among the ranks of the core.
  };
  struct Core : Resource {
    std::uint32_t turns = 0;  ///< The number of its ranks.
    std::uint32_t last;       ///< The rank that used it last, or kNone.
  };

  double switch_us_;
  std::vector<Seat> seats_;  ///< Indexed by rank.
  std::vector<Core> cores_;
};

}  // namespace xylem::collectives
