// SPDX-License-Identifier: Apache-2.0
#include "run/binding.h"

#include "xylem/topology/discover.h"
#include "xylem/topology/placement.h"

#include <fmt/format.h>

#include <sched.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace xylem::tools {
namespace {

using topology::CpuSet;

CpuSet common(const CpuSet& cpus, const CpuSet& allowed) {
  CpuSet both;
  for (const CpuSet::Range& range : cpus.ranges()) {
    for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) {
      if (allowed.contains(cpu)) both.add(cpu, cpu);
    }
  }
  return both;
}

Result<CpuSet> own_cpus() {
  // The kernel rejects a set that is smaller than its own, so try larger sets.
  for (int cpus = CPU_SETSIZE;; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(cpus), [](cpu_set_t* memory) { CPU_FREE(memory); });
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    constexpr int kMostCpus = 1 << 20;
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL && cpus < kMostCpus) continue;
      return failure(Code::unsupported,
                     fmt::format("--bind: the system does not report which CPUs may be used: {}",
                                 std::generic_category().message(errno)));
    }
    CpuSet own;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (!CPU_ISSET_S(cpu, bytes, set.get())) continue;
      own.add(static_cast<std::uint32_t>(cpu), static_cast<std::uint32_t>(cpu));
    }
    return own;
  }
}

}  // namespace

Result<std::vector<CpuSet>> bind_ranks(const topology::Topology& topology,
                                       const CpuSet& allowed,
                                       std::uint32_t ranks) {
  topology::Machine machine = topology.machine();
  for (auto& package : machine.packages) package.cpus = common(package.cpus, allowed);
  for (auto& node : machine.numa_nodes) node.cpus = common(node.cpus, allowed);
  XYLEM_TRY(const auto usable, topology::Topology::create(std::move(machine)));
  std::vector<CpuSet> bound;
  for (const topology::RankPlace& place : topology::place_ranks(usable, ranks)) {
    if (place.cpus.empty()) {
      return failure(
          Code::unsupported,
          fmt::format("--bind: of the CPUs {} that may be used, none is known to be near "
                      "rank {} ({}); start without --bind",
                      allowed.to_string(), bound.size(), place.text));
    }
    bound.push_back(place.cpus);
  }
  return bound;
}

Result<std::vector<CpuSet>> bind_ranks(std::uint32_t ranks) {
  // This process will fork the ranks, so it must have a single thread. The driver's libraries start
  // threads, so they must not be loaded.
  topology::DiscoverOptions options;
  options.nvml.clear();
  options.cuda.clear();
  XYLEM_TRY(const auto topology, topology::discover(options));
  XYLEM_TRY(const auto allowed, own_cpus());
  return bind_ranks(topology, allowed, ranks);
}

}  // namespace xylem::tools
