// SPDX-License-Identifier: Apache-2.0
#include "network_costs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace xylem::runtime {
namespace {

using collectives::CostModel;
using collectives::PortLevel;

/// Pairs of a round that are slower than this share of their ports' rates share a trunk. Rates that
/// are measured several times on a busy machine differ by less.
constexpr double kClearly = 0.8;

/// Sets values that no measurement gives to 0: the samples of other hosts may be anything.
void drop_impossible(NetworkSample& sample) {
  constexpr double kLeast = 1e-9, kMost = 1e9;
  const auto check = [](double& value) {
    if (!(value > kLeast && value < kMost)) value = 0;
  };
  for (double* value :
       {&sample.half_trip_us, &sample.send_us, &sample.message_us, &sample.flow_GBps}) {
    check(*value);
  }
  for (double& rate : sample.host_GBps) check(rate);
}

/// Whether two rates differ by no more than measurements of one rate do.
bool is_about(double rate, double usual) {
  return rate >= kClearly * usual && kClearly * rate <= usual;
}

/// The median of the values above 0; absent if there are none.
std::optional<double> median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return value <= 0; });
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<double> all_of(std::span<const NetworkSample> samples, double NetworkSample::*fact) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const NetworkSample& sample : samples) values.push_back(sample.*fact);
  return values;
}

/// The level of the ports of all hosts. `of_host` has the rate of all ports of each host that have
/// been measured together.
PortLevel port_level(const CostModel& model,
                     std::span<const std::uint32_t> rails,
                     std::span<const double> of_host) {
  PortLevel level;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;  // By host and rail.
  std::vector<std::uint32_t> ports_of_host(of_host.size());
  for (std::size_t rank = 0; rank < model.host.size(); ++rank) {
    const auto next = static_cast<std::uint32_t>(known.size());
    const auto [port, is_new] = known.try_emplace({model.host[rank], rails[rank]}, next);
    ports_of_host[model.host[rank]] += is_new ? 1 : 0;
    level.port.push_back(port->second);
  }
  level.rate_GBps.resize(known.size());
  for (const auto& [place, port] : known)
    level.rate_GBps[port] =
        of_host[place.first] / std::min<double>(ports_of_host[place.first], kMostPairs);
  return level;
}

/// The level of the trunks of a round, if there are any. `port` has the rate of each host.
std::optional<PortLevel> trunks(const CostModel& model,
                                std::span<const NetworkSample> samples,
                                std::span<const double> port,
                                std::size_t round,
                                std::uint32_t bit) {
  const auto hosts = static_cast<std::uint32_t>(samples.size());
  const std::uint32_t blocks = ((hosts - 1) >> bit) + 1;
  std::vector<double> reached(blocks, 1), possible(blocks), all_ports(blocks);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    const std::uint32_t block = host >> bit;
    all_ports[block] += port[host];
    const auto partner = measuring_partner(host, bit, hosts);
    const double rate = samples[host].host_GBps[round];
    if (!partner || rate <= 0) continue;
    const double expected = std::min(port[host], port[*partner]);
    possible[block] += expected;
    // The last pair to finish has had its share of the trunk for all of its time.
    reached[block] = std::min(reached[block], rate / expected);
  }
  PortLevel level;
  level.rate_GBps.reserve(blocks);
  level.port.reserve(model.host.size());
  bool is_any = false;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const bool is_trunk = possible[block] > 0 && reached[block] < kClearly;
    level.rate_GBps.push_back(is_trunk ? reached[block] * possible[block] : all_ports[block]);
    is_any = is_any || is_trunk;
  }
  if (!is_any) return std::nullopt;
  const double usual = median(level.rate_GBps).value_or(0);
  for (double& rate : level.rate_GBps) {
    if (is_about(rate, usual)) rate = usual;
  }
  for (const std::uint32_t host : model.host) level.port.push_back(host >> bit);
  return level;
}

}  // namespace

std::vector<std::uint32_t> measuring_bits(std::uint32_t hosts) {
  if (hosts < 2) return {};
  const auto bits = static_cast<std::uint32_t>(std::bit_width(hosts - 1));
  constexpr std::uint32_t kMost = kMostRounds;
  const std::uint32_t count = std::min(bits, kMost);
  std::vector<std::uint32_t> chosen;
  chosen.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    chosen.push_back(bits <= kMost ? i : i * (bits - 1) / (kMost - 1));
  }
  return chosen;
}

std::optional<std::uint32_t> measuring_partner(std::uint32_t host,
                                               std::uint32_t bit,
                                               std::uint32_t hosts) {
  const std::uint32_t partner = host ^ (1U << bit);
  return partner < hosts ? std::optional(partner) : std::nullopt;
}

bool is_measured(std::span<const NetworkSample> samples) {
  const auto has_rate = [](const NetworkSample& sample) {
    return std::ranges::max(sample.host_GBps) > 0;
  };
  return samples.size() < 2 || std::ranges::all_of(samples, has_rate);
}

void set_network(CostModel& model,
                 std::span<const NetworkSample> measured,
                 std::span<const std::uint32_t> rails) {
  std::vector<NetworkSample> samples(measured.begin(), measured.end());
  for (NetworkSample& sample : samples) drop_impossible(sample);
  const auto hosts = static_cast<std::uint32_t>(samples.size());
  const auto half_trip = median(all_of(samples, &NetworkSample::half_trip_us));
  if (!half_trip) return;
  // Half of a round trip consists of the work of the sender, the way, and the work of the receiver.
  // Of many messages at once, several are sent together, so they show what the receiver takes.
  const auto fact = [&](double NetworkSample::*which) {
    return median(all_of(samples, which)).value_or(0);
  };
  model.remote_send_us = std::min(fact(&NetworkSample::send_us), *half_trip);
  const double others = *half_trip - model.remote_send_us;
  model.remote_receive_us = std::min(fact(&NetworkSample::message_us), others);
  model.remote.alpha_us = std::max(others - model.remote_receive_us, *half_trip / 100);

  std::vector<double> port;
  port.reserve(samples.size());
  for (const NetworkSample& sample : samples) port.push_back(std::ranges::max(sample.host_GBps));
  const auto usual = median(port);
  if (!usual) return;
  for (double& rate : port) rate = is_about(rate, *usual) || rate <= 0 ? *usual : rate;
  model.remote.bandwidth_GBps =
      std::max(std::ranges::max(all_of(samples, &NetworkSample::flow_GBps)), *usual / 10);
  model.network = {port_level(model, rails, port)};
  const auto bits = measuring_bits(hosts);
  for (std::size_t round = 0; round < bits.size(); ++round) {
    // A trunk of one host is its port.
    if (auto level = trunks(model, samples, port, round, bits[round]); level && bits[round] > 0) {
      model.network.push_back(*std::move(level));
    }
  }
}

}  // namespace xylem::runtime
