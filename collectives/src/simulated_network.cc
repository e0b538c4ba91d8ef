// SPDX-License-Identifier: Apache-2.0
#include "simulated_network.h"

#include <algorithm>

namespace xylem::collectives {

SimulatedNetwork::SimulatedNetwork(const CostModel& model, std::size_t ranks)
    : model_(model), within_host_(ranks), nics_(ranks) {
  const auto last_host = std::ranges::max_element(model.host);
  hosts_.resize(last_host == model.host.end() ? 1 : std::size_t{*last_host} + 1);
}

// If the model limits NICs, a slice between hosts occupies the NIC of its rank first. arrive()
// occupies the port of the host, from the moment when the NIC starts. So slices that wait for one
// NIC do not block the other NICs of the host.
double SimulatedNetwork::depart(const Parcel& parcel, double ready) {
  const bool is_capped = has_own_nics(parcel);
  Resource& port = is_capped         ? nics_[parcel.from].out
                   : parcel.is_local ? within_host_[parcel.from].out
                                     : hosts_[model_.host[parcel.from]].out;
  const double rate = is_capped ? model_.rank_remote_GBps : parcel.bandwidth_GBps;
  const double start = port.start(ready);
  port.occupy(start, transfer_us(parcel.bytes, rate));
  return start;
}

double SimulatedNetwork::arrive(const Parcel& parcel, double departed) {
  const double transfer = transfer_us(parcel.bytes, parcel.bandwidth_GBps);
  if (parcel.is_local) {
    return within_host_[parcel.to].in.occupy(departed, transfer);
  }
  Ports& to_host = hosts_[model_.host[parcel.to]];
  if (!has_own_nics(parcel)) return to_host.in.occupy(departed, transfer);
  Resource& out = hosts_[model_.host[parcel.from]].out;
  const double passed = out.start(departed);
  out.occupy(passed, transfer);
  const double entered = to_host.in.start(passed);
  const double end = to_host.in.occupy(entered, transfer);
  const double own = transfer_us(parcel.bytes, model_.rank_remote_GBps);
  return std::max(end, nics_[parcel.to].in.occupy(entered, own));
}

}  // namespace xylem::collectives
