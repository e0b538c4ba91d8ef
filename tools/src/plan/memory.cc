// SPDX-License-Identifier: Apache-2.0
#include "plan/memory.h"

#include "xylem/topology/gpu_memory.h"
#include "xylem/topology/rings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace xylem::tools {
namespace {

/// Assumed share of the bandwidth of a memory that a kernel or copy reaches.
constexpr double kReached = 0.9;
/// The rate of a GPU's PCIe link of unknown speed: x16 of generation 3, the slowest that is usual.
constexpr double kAssumedPcie = 15.75;
/// The assumed size of slices of GPU memory. The time to enqueue such a slice is small compared to
/// the time to move it.
constexpr std::uint64_t kGpuSlice = 4 << 20;
/// The default of XYLEM_SLICE.
constexpr std::uint64_t kSlice = 256 << 10;

bool has_gpu_of_its_own(const topology::Topology& host, std::uint32_t ranks) {
  return ranks <= host.gpus().size() &&
         std::ranges::all_of(host.gpus(), [](const topology::Gpu& gpu) {
           return gpu.pci.id.vendor == topology::kVendorNvidia;
         });
}

/// Calls `visit` with the first of consecutive hosts that are copies of one machine, and with its
/// index.
template <typename Visit>
void for_each_machine(std::span<const topology::Topology> hosts, Visit&& visit) {
  const topology::Machine* last = nullptr;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (&hosts[i].machine() == last) continue;
    last = &hosts[i].machine();
    visit(hosts[i], i);
  }
}

/// True if a driver reports that two GPUs of a host cannot reach each other's memory.
bool lack_peer_access(std::span<const topology::Topology> hosts) {
  using topology::PeerAccess;
  return std::ranges::any_of(hosts, [](const topology::Topology& host) {
    return std::ranges::any_of(host.gpu_pairs(), [](const topology::GpuPair& pair) {
      return pair.access != PeerAccess::yes && pair.access != PeerAccess::unknown;
    });
  });
}

/// The least of the hosts' ring bandwidths; none if the bandwidth of a host is unknown.
std::optional<GBps> ring_rate(std::span<const topology::Topology> hosts) {
  std::optional<GBps> least;
  bool are_known = true;
  for_each_machine(hosts, [&](const topology::Topology& host, std::size_t /*index*/) {
    const auto rate = topology::plan_rings(host).bandwidth;
    if (!rate) {
      are_known = false;
    } else {
      least = least ? std::min(*least, *rate) : *rate;
    }
  });
  return are_known ? least : std::nullopt;
}

/// Sets the rates of `memory` to those of the slowest GPU that a rank uses.
void add_gpu_rates(std::span<const topology::Topology> hosts,
                   std::span<const std::uint32_t> ranks,
                   PlannedMemory& memory) {
  constexpr GBps kAny{std::numeric_limits<double>::infinity()};
  topology::KnownRate own{kAny, {}}, host_link{kAny, {}};
  const auto slower = [](topology::KnownRate& least, const topology::KnownRate& rate) {
    if (rate.bandwidth < least.bandwidth) least = rate;
  };
  for_each_machine(hosts, [&](const topology::Topology& host, std::size_t index) {
    for (std::uint32_t gpu = 0; gpu < std::min<std::size_t>(ranks[index], host.gpus().size());
         ++gpu) {
      slower(own, topology::memory_rate(host.gpus()[gpu]));
      const auto rate = topology::host_rate(host, gpu);
      slower(host_link, rate ? topology::KnownRate{*rate, "its share of PCIe"}
                             : topology::KnownRate{GBps{kAssumedPcie}, "PCIe of unknown speed"});
    }
  });
  collectives::ComputeCost& cost = memory.compute;
  cost.is_device = true;
  // A reduction of two sources reads two and writes one; a copy reads and writes.
  cost.reduce_GBps = kReached * own.bandwidth.value / 3;
  cost.copy_GBps = kReached * own.bandwidth.value / 2;
  const collectives::CostModel assumed = collectives::device_costs({}, kGpuSlice);
  memory.local.alpha_us = assumed.local.alpha_us;
  cost.enqueue_us = assumed.compute.enqueue_us;
  cost.latency_us = assumed.compute.latency_us;
  memory.compute_origin = fmt::format("by GPUs: {:.0f} % of {}, {}", kReached * 100,
                                      format_bandwidth(own.bandwidth), own.origin);
  if (!memory.is_staged) return;
  cost.host_GBps = kReached * host_link.bandwidth.value;
  cost.stages_local = false;
  memory.compute_origin +=
      fmt::format("; memory of the host {} each way: {:.0f} % of {}",
                  format_bandwidth(GBps{cost.host_GBps}), kReached * 100, host_link.origin);
}

}  // namespace

Result<PlannedMemory> memory_of(const PlanOptions& options,
                                std::span<const topology::Topology> hosts,
                                std::span<const std::uint32_t> ranks) {
  PlannedMemory memory;
  bool have_gpus = true;
  std::size_t lacking = 0;
  for (std::size_t i = 0; i < hosts.size() && have_gpus; ++i) {
    have_gpus = has_gpu_of_its_own(hosts[i], ranks[i]);
    lacking = i;
  }
  const bool asks_for_gpus = options.device == PlanOptions::Device::cuda || options.is_staged;
  if (asks_for_gpus && options.device == PlanOptions::Device::host) {
    return failure(Code::invalid_argument,
                   "--staged with --device host: only memory of GPUs is staged; leave one out");
  }
  if (asks_for_gpus && !have_gpus) {
    return failure(Code::invalid_argument,
                   fmt::format("{}: host {} has {} ranks and {} GPUs, and each rank needs a GPU of "
                               "NVIDIA; use --device host, or fewer ranks (--ranks)",
                               options.is_staged ? "--staged" : "--device cuda", lacking,
                               ranks[lacking], hosts[lacking].gpus().size()));
  }
  const collectives::CostModel assumed = collectives::assumed_costs();
  memory.is_on_gpus = have_gpus && options.device != PlanOptions::Device::host;
  memory.is_staged = memory.is_on_gpus && options.is_staged;
  memory.compute = assumed.compute;
  memory.compute_origin = "assumed, by CPUs";
  memory.local = assumed.local;
  memory.local_origin = "assumed, shared memory";
  if (memory.is_on_gpus) add_gpu_rates(hosts, ranks, memory);
  if (memory.is_on_gpus) {
    memory.local_origin = "assumed";
    if (const auto rate = ring_rate(hosts)) {
      memory.local.bandwidth_GBps = rate->value;
      memory.local_origin = "latency assumed, bandwidth of the GPU rings";
    }
    if (lack_peer_access(hosts)) {
      memory.local_origin += "; but the driver says that some GPUs have no peer access";
    }
  }
  const bool is_direct = memory.is_on_gpus && !memory.is_staged;
  memory.slice_bytes = is_direct ? kGpuSlice : kSlice;
  memory.slice_origin = is_direct ? "assumed for GPUs" : "the default of XYLEM_SLICE";
  if (options.slice.value > 0) {
    memory.slice_bytes = options.slice.value;
    memory.slice_origin = "as given";
  }
  return memory;
}

}  // namespace xylem::tools
