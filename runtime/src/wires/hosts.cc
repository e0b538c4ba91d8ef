// SPDX-License-Identifier: Apache-2.0
#include "wires/hosts.h"

#include "progress/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace xylem::runtime {
namespace {

/// Numbers the values of a fact in the order in which they first appear.
std::vector<std::uint32_t> numbered(const std::vector<PeerFacts>& peers,
                                    std::uint64_t PeerFacts::*fact) {
  std::map<std::uint64_t, std::uint32_t> seen;
  std::vector<std::uint32_t> numbers;
  numbers.reserve(peers.size());
  for (const auto& peer : peers) {
    const auto next = static_cast<std::uint32_t>(seen.size());
    numbers.push_back(seen.try_emplace(peer.*fact, next).first->second);
  }
  return numbers;
}

}  // namespace

std::vector<std::uint32_t> Hosts::indices() const { return numbered(peers_, &PeerFacts::kernel); }

std::vector<std::uint32_t> Hosts::machines() const { return numbered(peers_, &PeerFacts::machine); }

std::vector<std::uint32_t> Hosts::machine_cores() const {
  const auto machine = machines();
  std::vector<std::uint32_t> cores;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (machine[rank] == cores.size()) cores.push_back(cores_of(peers_[rank].machine));
  }
  return cores;
}

std::string Hosts::ports() const {
  const auto host = indices();
  std::string text;
  for (std::uint32_t rank = 0, next = 0; rank < peers_.size(); ++rank) {
    if (host[rank] != next) continue;
    text += fmt::format("{}, {} ranks, {}\n", peers_[rank].host, std::ranges::count(host, next),
                        peers_[rank].port);
    ++next;
  }
  return text;
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

std::uint32_t Hosts::machine_size() const noexcept {
  return static_cast<std::uint32_t>(
      std::ranges::count(peers_, peers_[rank_].machine, &PeerFacts::machine));
}

bool Hosts::has_core_for_each() const {
  return runtime::has_core_for_each(core_sets_of(peers_[rank_].machine));
}

std::vector<CoreSet> Hosts::core_sets_of(std::uint64_t machine) const {
  std::vector<CoreSet> sets;
  for (const auto& peer : peers_) {
    if (peer.machine == machine) sets.push_back(peer.cores);
  }
  return sets;
}

/// The quota of a host is the smallest of its ranks. Hosts have quotas of their own, so the quotas
/// of a machine's hosts add up, unless a host has none.
std::uint32_t Hosts::cores_of(std::uint64_t machine) const {
  std::map<std::uint64_t, std::uint32_t> of_host;
  for (const auto& peer : peers_) {
    if (peer.machine != machine) continue;
    std::uint32_t& quota = of_host.try_emplace(peer.kernel, peer.quota).first->second;
    if (quota == 0 || (peer.quota != 0 && peer.quota < quota)) quota = peer.quota;
  }
  std::optional<std::uint32_t> sum = 0;
  for (const auto& [host, quota] : of_host) {
    sum = sum && quota != 0 ? std::optional(*sum + quota) : std::nullopt;
  }
  return cores_together(core_sets_of(machine), sum);
}

}  // namespace xylem::runtime
