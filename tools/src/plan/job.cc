// SPDX-License-Identifier: Apache-2.0
#include "plan/job.h"

#include "flags.h"
#include "machine.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace xylem::tools {
namespace {

Result<std::vector<topology::Topology>> hosts_of(const PlanOptions& options) {
  std::vector<topology::Topology> machines;
  if (options.sources.empty()) {
    XYLEM_TRY(auto machine, machine_of(""));
    machines.push_back(std::move(machine));
  }
  for (const std::string& source : options.sources) {
    XYLEM_TRY(auto machine, machine_of(source));
    machines.push_back(std::move(machine));
  }
  const std::size_t count = options.hosts == 0 ? machines.size() : options.hosts;
  if (count % machines.size() != 0) {
    return failure(
        Code::invalid_argument,
        fmt::format("--hosts {}: the {} machines are repeated, so give a multiple of this "
                    "number",
                    options.hosts, machines.size()));
  }
  std::vector<topology::Topology> hosts;
  hosts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) hosts.push_back(machines[i % machines.size()]);
  return hosts;
}

/// The number of ranks of each host. If `ranks` is 0: one for each GPU, and at least one. Otherwise
/// `ranks` is divided evenly among the hosts.
Result<std::vector<std::uint32_t>> spread(const std::vector<topology::Topology>& hosts,
                                          std::uint32_t ranks) {
  std::vector<std::uint32_t> result;
  if (ranks == 0) {
    for (const topology::Topology& host : hosts) {
      result.push_back(std::max(1U, static_cast<std::uint32_t>(host.gpus().size())));
    }
    return result;
  }
  if (ranks < hosts.size()) {
    return failure(
        Code::invalid_argument,
        fmt::format("{} ranks on {} hosts: each host has at least one", ranks, hosts.size()));
  }
  for (std::uint64_t host = 0; host < hosts.size(); ++host) {
    result.push_back(static_cast<std::uint32_t>((host + 1) * ranks / hosts.size() -
                                                host * ranks / hosts.size()));
  }
  return result;
}

/// The total bandwidth of some NICs; absent if there are none, or the rate of one is unknown.
std::optional<double> total_rate(const topology::Topology& host,
                                 const std::vector<std::uint32_t>& nics,
                                 const topology::NetworkFacts& network) {
  double sum = 0;
  for (const std::uint32_t nic : nics) {
    std::optional<GBps> rate = topology::rate_of(host.nics()[nic]);
    if (network.rail_rate) rate = std::min(rate.value_or(*network.rail_rate), *network.rail_rate);
    if (!rate) return std::nullopt;
    sum += rate->value;
  }
  return nics.empty() ? std::nullopt : std::optional(sum);
}

/// The ports that the NICs of the ranks form: ranks with the same NICs share a port. Absent if the
/// NICs of a rank, or their rates, are unknown.
std::optional<collectives::PortLevel> ports_of_nics(const PlannedJob& job) {
  collectives::PortLevel level;
  std::vector<std::uint32_t> ports;  // Of the ranks of one host.
  for (std::uint32_t host = 0; host < job.hosts(); ++host) {
    const auto first = static_cast<std::uint32_t>(level.rate_GBps.size());
    const std::uint32_t ranks = job.ranks_of_host[host];
    const topology::Topology& machine = job.cluster.hosts[host];
    const bool is_copy = host > 0 && ranks == job.ranks_of_host[host - 1] &&
                         &machine.machine() == &job.cluster.hosts[host - 1].machine();
    if (is_copy) {
      // Places of equal hosts are computed only once.
      const auto of_copy = static_cast<std::ptrdiff_t>(std::ranges::max(ports)) + 1;
      const std::vector<double> rates(level.rate_GBps.end() - of_copy, level.rate_GBps.end());
      level.rate_GBps.insert(level.rate_GBps.end(), rates.begin(), rates.end());
    } else {
      ports.clear();
      std::map<std::vector<std::uint32_t>, std::uint32_t> known;
      for (const topology::RankPlace& place : topology::place_ranks(machine, ranks)) {
        const auto rate = total_rate(machine, place.nics, job.cluster.network);
        if (!rate || *rate <= 0) return std::nullopt;
        const auto next = static_cast<std::uint32_t>(known.size());
        const auto [port, is_new] = known.try_emplace(place.nics, next);
        if (is_new) level.rate_GBps.push_back(*rate);
        ports.push_back(port->second);
      }
    }
    for (const std::uint32_t port : ports) level.port.push_back(first + port);
  }
  return level;
}

/// Sets the cost of messages between hosts. The network has the ports of the NICs and of the hosts.
void set_network(PlannedJob& job) {
  const topology::NetworkFacts& network = job.cluster.network;
  collectives::LinkCost& remote = job.model.remote;
  const std::string_view latency = network.latency_us ? "as given" : "assumed";
  if (network.latency_us) remote.alpha_us = *network.latency_us;
  const auto all = job.cluster.host_rate();
  if (!all) {
    remote.bandwidth_GBps /= network.oversubscription;
    job.remote_origin =
        fmt::format("latency {}, bandwidth assumed{}", latency,
                    network.oversubscription > 1 ? ", less by oversubscription" : "");
    return;
  }
  remote.bandwidth_GBps = all->value;
  job.remote_origin = fmt::format("latency {}, bandwidth of all rails of a host", latency);
  collectives::PortLevel hosts{job.model.host, std::vector(job.hosts(), all->value)};
  if (auto nics = ports_of_nics(job)) {
    const auto [least, most] = std::ranges::minmax(nics->rate_GBps);
    remote.bandwidth_GBps = most;
    job.remote_origin = fmt::format(
        "latency {}, bandwidth of the NICs of a rank{}; {} of a host", latency,
        least < most ? fmt::format(", of some only {}", format_bandwidth(GBps{least})) : "",
        format_bandwidth(*all));
    job.model.network.push_back(*std::move(nics));
  }
  job.model.network.push_back(std::move(hosts));
}

/// The number of cores for all ranks of the host; 0 if it is unknown.
std::uint32_t cores_of(const topology::Topology& host) {
  std::uint32_t cores = 0;
  for (const topology::Package& package : host.packages()) cores += package.cpus.count();
  return cores;
}

}  // namespace

void use_memory(PlannedJob& job, PlannedMemory memory) {
  job.memory = std::move(memory);
  job.model.compute = job.memory.compute;
  job.model.local = job.memory.local;
  job.model.slice_bytes = job.memory.slice_bytes;
  job.model.machine_cores.clear();
  // Calls on memory of GPUs need no cores.
  const bool need_cores = !job.memory.is_on_gpus;
  for (const topology::Topology& host : job.cluster.hosts) {
    job.model.machine_cores.push_back(need_cores ? cores_of(host) : 0);
  }
}

Result<PlannedJob> job_of(const PlanOptions& options) {
  XYLEM_TRY(const auto network, topology::read_network(options.network));
  XYLEM_TRY(auto hosts, hosts_of(options));
  PlannedJob job;
  XYLEM_TRY(job.ranks_of_host, spread(hosts, options.ranks));
  std::uint64_t ranks = 0;
  for (const std::uint32_t count : job.ranks_of_host) ranks += count;
  if (ranks > kMostPlannedRanks) {
    return failure(Code::invalid_argument,
                   fmt::format("{} ranks: at most {} are planned for", ranks, kMostPlannedRanks));
  }
  XYLEM_TRY(job.cluster, topology::make_cluster(std::move(hosts), network));
  XYLEM_TRY(auto memory, memory_of(options, job.cluster.hosts, job.ranks_of_host));
  job.model = collectives::assumed_costs();
  use_memory(job, std::move(memory));
  for (std::uint32_t host = 0; host < job.hosts(); ++host) {
    job.model.host.insert(job.model.host.end(), job.ranks_of_host[host], host);
  }
  set_network(job);
  return job;
}

std::string place_of(const PlannedJob& job, std::uint32_t rank) {
  const std::uint32_t host = job.model.host[rank];
  const auto first = std::ranges::lower_bound(job.model.host, host) - job.model.host.begin();
  const auto places = topology::place_ranks(job.cluster.hosts[host], job.ranks_of_host[host]);
  return fmt::format("host {}: {}", host, places[rank - static_cast<std::uint32_t>(first)].text);
}

std::vector<std::string> rails_of(const PlannedJob& job) {
  std::vector<std::string> lines;
  for (const topology::Rail& rail : job.cluster.rails) {
    // Hosts that use the same name for the NIC are listed together.
    std::vector<std::string> names;
    std::vector<std::uint32_t> counts;
    for (std::uint32_t host = 0; host < job.hosts(); ++host) {
      const std::string& name = job.cluster.hosts[host].nics()[rail.nics[host]].name;
      const auto known = std::ranges::find(names, name);
      const auto at = static_cast<std::size_t>(known - names.begin());
      if (known == names.end()) {
        names.push_back(name);
        counts.push_back(0);
      }
      ++counts[at];
    }
    const auto rate = rail.rate;
    std::string text = rate ? format_bandwidth(*rate) : "rate unknown";
    for (std::size_t i = 0; i < names.size(); ++i) {
      text += fmt::format("{} {}", i == 0 ? ":" : ",", names[i]);
      if (names.size() > 1) {
        text += fmt::format(" on {} host{}", counts[i], counts[i] == 1 ? "" : "s");
      }
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace xylem::tools
