// SPDX-License-Identifier: Apache-2.0
//
// The ports through which the messages of a simulated job pass: first one at which a slice leaves,
// then one at which it arrives. Within a host these are ports of the two ranks, and between hosts
// ports of the two hosts. If the model has them, the NICs of the two ranks come before and after.
#pragma once

#include "simulated_resource.h"
#include "xylem/collectives/cost_model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::collectives {

/// A slice on its way from one rank to another.
struct Parcel {
  std::uint32_t from = 0, to = 0;
  bool is_local = true;  ///< Within a host.
  double bytes = 0;
  double bandwidth_GBps = 1;  ///< Of the link between the two.
};

class SimulatedNetwork {
 public:
  /// The model outlives this object.
  SimulatedNetwork(const CostModel& model, std::size_t ranks);

  /// Lets a slice leave when it is ready and its first port is free. Returns when it begins.
  double depart(const Parcel& parcel, double ready);
  /// Lets a slice arrive that began to leave at this time. Returns when all of it has passed the
  /// ports.
  double arrive(const Parcel& parcel, double departed);

 private:
  struct Ports {
    Resource out, in;
  };

  /// Whether the NICs of the two ranks carry it, which are no other rank's.
  bool has_own_nics(const Parcel& parcel) const noexcept {
    return !parcel.is_local && model_.rank_remote_GBps > 0;
  }

  const CostModel& model_;
  std::vector<Ports> within_host_, nics_;  ///< Indexed by rank.
  std::vector<Ports> hosts_;               ///< Indexed by host.
};

}  // namespace xylem::collectives
