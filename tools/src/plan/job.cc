// SPDX-License-Identifier: Apache-2.0
#include "plan/job.h"

#include "flags.h"
#include "machine.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/placement.h"

#include <fmt/format.h>

#include <algorithm>
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

/// The total bandwidth of a rank's NICs, for the rank for which it is least. 0 if the rate of a NIC
/// is unknown.
double rank_rate(const topology::Topology& host,
                 std::uint32_t ranks,
                 const topology::NetworkFacts& network) {
  double least = 0;
  for (const topology::RankPlace& place : topology::place_ranks(host, ranks)) {
    double sum = 0;
    for (const std::uint32_t nic : place.nics) {
      std::optional<GBps> rate = topology::rate_of(host.nics()[nic]);
      if (network.rail_rate) rate = std::min(rate.value_or(*network.rail_rate), *network.rail_rate);
      if (!rate) return 0;
      sum += rate->value;
    }
    if (sum <= 0) return 0;
    least = least > 0 ? std::min(least, sum) : sum;
  }
  return least;
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
  job.model.host_cores.clear();
  // Calls on memory of GPUs need no cores.
  const bool need_cores = !job.memory.is_on_gpus;
  for (const topology::Topology& host : job.cluster.hosts) {
    job.model.host_cores.push_back(need_cores ? cores_of(host) : 0);
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
  const std::string_view latency = network.latency_us ? "as given" : "assumed";
  if (network.latency_us) job.model.remote.alpha_us = *network.latency_us;
  if (const auto all = job.cluster.host_rate()) {
    job.model.remote.bandwidth_GBps = all->value;
    job.remote_origin = fmt::format("latency {}, bandwidth of all rails of a host", latency);
    // Of consecutive hosts that are copies of one machine, the first is enough.
    for (std::size_t host = 0; host < job.cluster.hosts.size(); ++host) {
      if (host > 0 && &job.cluster.hosts[host].machine() == &job.cluster.hosts[host - 1].machine())
        continue;
      const double rate = rank_rate(job.cluster.hosts[host], job.ranks_of_host[host], network);
      double& least = job.model.rank_remote_GBps;
      least = host == 0 ? rate : std::min(least, rate);
    }
    if (job.model.rank_remote_GBps > 0) {
      job.remote_origin +=
          fmt::format(", {} of one rank", format_bandwidth(GBps{job.model.rank_remote_GBps}));
    }
  } else {
    job.model.remote.bandwidth_GBps /= network.oversubscription;
    job.remote_origin =
        fmt::format("latency {}, bandwidth assumed{}", latency,
                    network.oversubscription > 1 ? ", less by oversubscription" : "");
  }
  for (std::uint32_t host = 0; host < job.hosts(); ++host) {
    job.model.host.insert(job.model.host.end(), job.ranks_of_host[host], host);
  }
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
