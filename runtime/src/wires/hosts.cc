// SPDX-License-Identifier: Apache-2.0
#include "wires/hosts.h"

#include "progress/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>

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

Hosts::Hosts(std::vector<PeerFacts> peers, std::uint32_t rank)
    : peers_(std::move(peers)), rank_(rank) {
  std::map<std::uint64_t, std::uint32_t> sizes;
  places_.reserve(peers_.size());
  for (const PeerFacts& peer : peers_) places_.push_back(sizes[peer.kernel]++);
}

std::vector<std::string> Hosts::shared_networks() const {
  std::vector<std::string> shared;
  const std::vector<std::uint32_t> host = indices();
  if (peers_.empty() || std::ranges::max(host) == 0) return shared;
  for (const Port& port : peers_[0].ports) {
    std::map<std::string, std::uint32_t> host_of;  // By address.
    const auto has_port = [&](std::size_t rank) {
      const Port* const own = port_in(static_cast<std::uint32_t>(rank), port.network);
      return own != nullptr &&
             host_of.try_emplace(own->address, host[rank]).first->second == host[rank];
    };
    const bool is_shared =
        std::ranges::all_of(std::views::iota(std::size_t{0}, peers_.size()), has_port);
    const bool is_new = std::ranges::find(shared, port.network) == shared.end();
    if (is_shared && is_new && !port.network.empty()) shared.push_back(port.network);
  }
  const auto is_first_shared = [&](const PeerFacts& peer) {
    return !peer.ports.empty() &&
           std::ranges::find(shared, peer.ports.front().network) != shared.end();
  };
  if (!std::ranges::all_of(peers_, is_first_shared)) shared.clear();
  return shared;
}

const Port* Hosts::port_in(std::uint32_t rank, const std::string& network) const {
  const auto& ports = peers_[rank].ports;
  const auto found = std::ranges::find(ports, network, &Port::network);
  return found == ports.end() ? nullptr : &*found;
}

void Hosts::set_rails(std::vector<std::string> networks) {
  rails_ = std::move(networks);
  const std::size_t most_ranks = std::size_t{std::ranges::max(places_)} + 1;
  if (rails_.size() > most_ranks) rails_.resize(most_ranks);
}

std::uint32_t Hosts::rail_of(std::uint32_t rank) const {
  return rails_.empty() ? 0 : places_[rank] % static_cast<std::uint32_t>(rails_.size());
}

std::vector<std::uint32_t> Hosts::rails() const {
  std::vector<std::uint32_t> rails(peers_.size());
  for (std::uint32_t rank = 0; rank < rails.size(); ++rank) rails[rank] = rail_of(rank);
  return rails;
}

const Port& Hosts::port(std::uint32_t rank) const {
  static const Port kUnknown;
  const std::vector<Port>& ports = peers_[rank].ports;
  if (ports.empty()) return kUnknown;
  if (rails_.empty()) return ports.front();
  return *port_in(rank, rails_[rail_of(rank)]);
}

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
    text += fmt::format("{}, {} ranks, {}", peers_[rank].host, std::ranges::count(host, next),
                        port(rank).text);
    for (std::size_t rail = 1; rail < rails_.size(); ++rail)
      text += "; " + port_in(rank, rails_[rail])->text;
    text += '\n';
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
