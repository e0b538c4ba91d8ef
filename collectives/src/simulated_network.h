// SPDX-License-Identifier: Apache-2.0
//
// The ports through which the messages of a simulated job pass. Each slice passes ports on which
// it leaves, and then ports on which it arrives. Within a host there is one pair of ports for each
// rank. Between hosts there is another pair for each rank (CostModel::remote), and the ports of
// CostModel::network.
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
  /// The rank that receives the slice. It differs from `to` if the simulated rank `to` represents
  /// it.
  std::uint32_t receiver = 0;
  bool is_local = true;  ///< Whether both ranks are on one host.
  double bytes = 0;
  double bandwidth_GBps = 1;  ///< The bandwidth of the link between the two ranks.
};

class SimulatedNetwork {
 public:
  /// `model` must outlive this object.
  SimulatedNetwork(const CostModel& model, std::size_t ranks);
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;
  ~SimulatedNetwork() = default;

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
  struct Level {
    const PortLevel* facts;
    std::vector<Ports> ports;

    bool crosses(const Parcel& parcel) const {
      return facts->port[parcel.from] != facts->port[parcel.receiver];
    }
  };

  std::vector<Ports> within_host_, between_hosts_;  ///< Indexed by rank.
  PortLevel hosts_;                                 ///< If the model states no levels.
  std::vector<Level> levels_;                       ///< Those of the model, or `hosts_`.
};

}  // namespace xylem::collectives
