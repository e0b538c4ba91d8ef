// SPDX-License-Identifier: Apache-2.0
//
// The ports through which the messages of a simulated job pass. Each slice passes a port at which
// it leaves, and then a port at which it arrives. Within a host these are ports of the two ranks,
// and between hosts ports of the two hosts. If the model limits the NICs of each rank
// (CostModel::rank_remote_GBps), a slice between hosts also passes the sender's NIC before these
// ports and the receiver's NIC after them.
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
  bool is_local = true;  ///< Whether both ranks are on one host.
  double bytes = 0;
  double bandwidth_GBps = 1;  ///< The bandwidth of the link between the two ranks.
};

class SimulatedNetwork {
 public:
  /// `model` must outlive this object.
  SimulatedNetwork(const CostModel& model, std::size_t ranks);

  /// Occupies the first port of a slice as soon as the port is free, but not before `ready`.
  /// Returns the time at which the slice begins to leave.
  double depart(const Parcel& parcel, double ready);
  /// Occupies the other ports of a slice that began to leave at `departed`. Returns the time at
  /// which the whole slice has arrived.
  double arrive(const Parcel& parcel, double departed);

 private:
  struct Ports {
    Resource out, in;
  };

  /// Whether the model limits the NICs of each rank and the slice passes NICs.
  bool has_own_nics(const Parcel& parcel) const noexcept {
    return !parcel.is_local && model_.rank_remote_GBps > 0;
  }

  const CostModel& model_;
  std::vector<Ports> within_host_, nics_;  ///< Indexed by rank.
  std::vector<Ports> hosts_;               ///< Indexed by host.
};

}  // namespace xylem::collectives
