// SPDX-License-Identifier: Apache-2.0
#include "simulated_network.h"

#include <algorithm>
#include <ranges>

namespace xylem::collectives {

SimulatedNetwork::SimulatedNetwork(const CostModel& model, std::size_t ranks)
    : within_host_(ranks), between_hosts_(ranks) {
  if (model.network.empty() && !model.host.empty()) {
    hosts_.port = model.host;
    hosts_.rate_GBps.assign(std::size_t{std::ranges::max(model.host)} + 1,
                            model.remote.bandwidth_GBps);
    levels_.push_back({&hosts_, std::vector<Ports>(hosts_.rate_GBps.size())});
  }
  for (const PortLevel& level : model.network) {
    levels_.push_back({&level, std::vector<Ports>(level.rate_GBps.size())});
  }
}

double SimulatedNetwork::depart(const Parcel& parcel, double ready) {
  auto& ports = parcel.is_local ? within_host_ : between_hosts_;
  Resource& port = ports[parcel.from].out;
  const double start = port.start(ready);
  port.occupy(start, transfer_us(parcel.bytes, parcel.bandwidth_GBps));
  return start;
}

// A slice passes several ports at once: it enters a port as soon as it has entered the port before
// and the port is free. It has arrived when the slowest port has passed all of it on.
double SimulatedNetwork::arrive(const Parcel& parcel, double departed) {
  const double own = transfer_us(parcel.bytes, parcel.bandwidth_GBps);
  if (parcel.is_local) return within_host_[parcel.to].in.occupy(departed, own);
  double entered = departed, end = departed + own;
  const auto pass = [&](Resource& port, double duration) {
    entered = port.start(entered);
    end = std::max(end, port.occupy(entered, duration));
  };
  for (Level& level : levels_) {
    if (!level.crosses(parcel)) continue;
    const std::uint32_t port = level.facts->port[parcel.from];
    pass(level.ports[port].out, transfer_us(parcel.bytes, level.facts->rate_GBps[port]));
  }
  for (Level& level : std::views::reverse(levels_)) {
    if (!level.crosses(parcel)) continue;
    const std::uint32_t port = level.facts->port[parcel.to];
    pass(level.ports[port].in, transfer_us(parcel.bytes, level.facts->rate_GBps[port]));
  }
  pass(between_hosts_[parcel.to].in, own);
  return end;
}

}  // namespace xylem::collectives
