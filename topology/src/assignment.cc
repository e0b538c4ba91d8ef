// SPDX-License-Identifier: Apache-2.0
//
// Assignment of NICs to GPUs as a bipartite graph, with an edge from each GPU to each of its
// nearest NICs.
#include "xylem/topology/assignment.h"

#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

namespace xylem::topology {

std::optional<GBps> rate_of(const Nic& nic) {
  std::optional<GBps> best;
  for (const Port& port : nic.ports) {
    if (port.rate) best = std::max(best.value_or(GBps{}), *port.rate);
  }
  return best;
}

namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
/// A NIC whose rate is below this share of the fastest NIC's rate is not assigned (NicUse::slow).
constexpr double kSlow = 0.25;

bool is_down(const Nic& nic) {
  return !nic.ports.empty() && std::ranges::all_of(nic.ports, [](const Port& port) {
    return port.state == PortState::down;
  });
}

std::vector<NicUse> uses_of(const Topology& topology) {
  std::vector<NicUse> uses(topology.nics().size(), NicUse::no_fabric);
  double fastest = 0;
  for (const std::uint32_t i : topology.fabric_nics()) {
    const Nic& nic = topology.nics()[i];
    uses[i] = is_down(nic) ? NicUse::down : NicUse::usable;
    if (uses[i] == NicUse::usable) {
      fastest = std::max(fastest, rate_of(nic).value_or(GBps{}).value);
    }
  }
  for (const std::uint32_t i : topology.fabric_nics()) {
    const auto rate = rate_of(topology.nics()[i]);
    if (uses[i] == NicUse::usable && rate && rate->value < kSlow * fastest) uses[i] = NicUse::slow;
  }
  return uses;
}

/// The optimal semi-matching. GPUs are assigned one after the other. For each GPU, the search finds
/// an alternating path to the least loaded NIC that it can reach. The GPU is assigned the first NIC
/// of the path, and each GPU on the path changes to the next NIC. So only the load of the last NIC
/// grows.
class SemiMatching {
 public:
  SemiMatching(const std::vector<GpuNics>& gpus, std::size_t nics)
      : gpus_(gpus), first_(gpus.size(), kNobody), loads_(nics, 0) {}

  void run() {
    for (std::uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      if (!gpus_[gpu].nics.empty()) place(gpu);
    }
  }

  /// first()[g] is the preferred NIC of GPU g; kNobody if the GPU has no NIC.
  const std::vector<std::uint32_t>& first() const { return first_; }
  const std::vector<std::uint32_t>& loads() const { return loads_; }

 private:
  void place(std::uint32_t gpu) {
    // Breadth-first search over NICs: from a NIC to the other NICs of each GPU that it serves.
    // reached_from[n] is the GPU from which the search reached NIC n.
    std::vector<std::uint32_t> reached_from(loads_.size(), kNobody);
    std::deque<std::uint32_t> open;
    std::uint32_t best = kNobody;
    const auto reach = [&](std::uint32_t from) {
      for (const std::uint32_t nic : gpus_[from].nics) {
        if (reached_from[nic] != kNobody) continue;
        reached_from[nic] = from;
        open.push_back(nic);
        if (best == kNobody || loads_[nic] < loads_[best]) best = nic;
      }
    };
    reach(gpu);
    // An unused NIC is the best possible result, so the search can stop.
    while (!open.empty() && loads_[best] > 0) {
      const std::uint32_t nic = open.front();
      open.pop_front();
      for (std::uint32_t other = 0; other < gpu; ++other) {
        if (first_[other] == nic) reach(other);
      }
    }
    ++loads_[best];
    for (std::uint32_t nic = best;;) {
      const std::uint32_t mover = reached_from[nic];
      const std::uint32_t before = std::exchange(first_[mover], nic);
      if (mover == gpu) return;
      nic = before;
    }
  }

  const std::vector<GpuNics>& gpus_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> loads_;
};

/// The NICs of each GPU, the preferred NIC first. Each NIC that no GPU prefers is added to the GPU
/// with the fewest NICs among the GPUs that have this NIC as a candidate.
std::vector<std::vector<std::uint32_t>> add_unused_nics(const std::vector<GpuNics>& candidates,
                                                        const SemiMatching& matching) {
  std::vector<std::vector<std::uint32_t>> shares(candidates.size());
  for (std::uint32_t gpu = 0; gpu < shares.size(); ++gpu) {
    if (matching.first()[gpu] != kNobody) shares[gpu].push_back(matching.first()[gpu]);
  }
  for (std::uint32_t nic = 0; nic < matching.loads().size(); ++nic) {
    if (matching.loads()[nic] > 0) continue;
    std::uint32_t neediest = kNobody;
    for (std::uint32_t gpu = 0; gpu < shares.size(); ++gpu) {
      const bool is_near = std::ranges::binary_search(candidates[gpu].nics, nic);
      if (is_near && (neediest == kNobody || shares[gpu].size() < shares[neediest].size())) {
        neediest = gpu;
      }
    }
    if (neediest != kNobody) shares[neediest].push_back(nic);
  }
  return shares;
}

/// First the preferred NICs, in the order of the GPUs that prefer them. Then the second NICs of the
/// GPUs, and so on.
std::vector<std::uint32_t> rails_of(const std::vector<GpuNics>& gpus) {
  std::vector<std::uint32_t> rails;
  const auto add = [&](std::uint32_t nic) {
    if (std::ranges::find(rails, nic) == rails.end()) rails.push_back(nic);
  };
  std::size_t most = 0;
  for (const GpuNics& gpu : gpus) most = std::max(most, gpu.nics.size());
  for (std::size_t place = 0; place < most; ++place) {
    for (const GpuNics& gpu : gpus) {
      if (place < gpu.nics.size()) add(gpu.nics[place]);
    }
  }
  return rails;
}

std::string listed(const std::vector<std::string>& names) {
  return names.size() < 2
             ? fmt::format("{}", fmt::join(names, ""))
             : fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "),
                           names.back());
}

std::string reason_of(const Topology& topology,
                      const NicAssignment& assignment,
                      std::uint32_t gpu) {
  const GpuNics& own = assignment.gpus[gpu];
  if (own.nics.empty()) {
    return topology.fabric_nics().empty() ? "this host has no NIC" : "no NIC is up and fast enough";
  }
  std::vector<std::string> names, sharers;
  for (const std::uint32_t nic : own.nics) names.push_back(topology.nics()[nic].name);
  for (std::uint32_t other = 0; other < assignment.gpus.size(); ++other) {
    const auto& nics = assignment.gpus[other].nics;
    if (other != gpu && !nics.empty() && nics.front() == own.nics.front())
      sharers.push_back(fmt::format("GPU{}", other));
  }
  Path path;
  path.path_class = own.path_class;
  std::string reason = fmt::format("{} to {}", cell_of(path), listed(names));
  if (!sharers.empty()) reason += fmt::format(", shared with {}", listed(sharers));
  return reason;
}

}  // namespace

NicAssignment assign_nics(const Topology& topology) {
  NicAssignment assignment;
  assignment.uses = uses_of(topology);
  std::vector<std::uint32_t> usable = topology.fabric_nics();
  std::erase_if(usable, [&](std::uint32_t nic) { return assignment.uses[nic] != NicUse::usable; });
  for (std::uint32_t gpu = 0; gpu < topology.gpus().size(); ++gpu) {
    NearestNics nearest = nearest_nics(topology, gpu, usable);
    assignment.gpus.push_back({nearest.path_class, std::move(nearest.nics), {}});
  }
  SemiMatching matching(assignment.gpus, topology.nics().size());
  matching.run();
  const auto shares = add_unused_nics(assignment.gpus, matching);
  for (std::uint32_t gpu = 0; gpu < shares.size(); ++gpu) assignment.gpus[gpu].nics = shares[gpu];
  assignment.loads = matching.loads();
  assignment.rails = assignment.gpus.empty() ? usable : rails_of(assignment.gpus);
  for (std::uint32_t gpu = 0; gpu < shares.size(); ++gpu) {
    assignment.gpus[gpu].reason = reason_of(topology, assignment, gpu);
  }
  return assignment;
}

}  // namespace xylem::topology
