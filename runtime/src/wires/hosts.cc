// SPDX-License-Identifier: Apache-2.0
#include "wires/hosts.h"

#include "progress/cores.h"

#include <algorithm>
#include <map>
#include <optional>

namespace xylem::runtime {

std::vector<std::uint32_t> Hosts::indices() const {
  std::map<std::uint64_t, std::uint32_t> seen;
  std::vector<std::uint32_t> indices;
  indices.reserve(peers_.size());
  for (const auto& peer : peers_) {
    indices.push_back(
        seen.try_emplace(peer.kernel, static_cast<std::uint32_t>(seen.size())).first->second);
  }
  return indices;
}

std::vector<std::uint32_t> Hosts::cores() const {
  const auto hosts = indices();
  std::vector<std::uint32_t> cores;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (hosts[rank] == cores.size()) cores.push_back(cores_of(peers_[rank].kernel));
  }
  return cores;
}

std::vector<std::uint32_t> Hosts::local_ranks() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t other = 0; other < peers_.size(); ++other) {
    if (are_together(rank_, other)) ranks.push_back(other);
  }
  return ranks;
}

std::uint32_t Hosts::local_size() const noexcept {
  return static_cast<std::uint32_t>(
      std::ranges::count(peers_, peers_[rank_].kernel, &PeerFacts::kernel));
}

std::uint32_t Hosts::local_cores() const { return cores_of(peers_[rank_].kernel); }

bool Hosts::has_core_for_each() const {
  return runtime::has_core_for_each(core_sets_of(peers_[rank_].kernel));
}

std::vector<CoreSet> Hosts::core_sets_of(std::uint64_t kernel) const {
  std::vector<CoreSet> sets;
  for (const auto& peer : peers_) {
    if (peer.kernel == kernel) sets.push_back(peer.cores);
  }
  return sets;
}

std::uint32_t Hosts::cores_of(std::uint64_t kernel) const {
  std::optional<std::uint32_t> quota;
  for (const auto& peer : peers_) {
    if (peer.kernel != kernel || peer.quota == 0) continue;
    quota = std::min(quota.value_or(peer.quota), peer.quota);
  }
  return cores_together(core_sets_of(kernel), quota);
}

}  // namespace xylem::runtime
