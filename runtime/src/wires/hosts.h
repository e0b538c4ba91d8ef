// SPDX-License-Identifier: Apache-2.0
//
// Hosts: on which host and machine each rank of a job is, and which cores the ranks of a machine
// share. The ranks of a host can share memory (PeerFacts::kernel). The ranks of a machine share its
// cores (PeerFacts::machine); containers on one machine are hosts of their own. A Hosts object is
// the same on all ranks, except for the number of this rank.
#pragma once

#include "wires/peer_facts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {

class Hosts {
 public:
  Hosts() = default;
  /// `peers` has the facts of all ranks, in rank order; `rank` is this rank.
  Hosts(std::vector<PeerFacts> peers, std::uint32_t rank);

  const std::vector<PeerFacts>& peers() const noexcept { return peers_; }
  std::uint32_t rank() const noexcept { return rank_; }
  bool are_together(std::uint32_t a, std::uint32_t b) const noexcept {
    return peers_[a].kernel == peers_[b].kernel;
  }
  /// For each rank, the index of its host. Hosts are numbered in the order of their first ranks.
  std::vector<std::uint32_t> indices() const;
  /// For each rank, the index of its machine, numbered likewise.
  std::vector<std::uint32_t> machines() const;
  /// For each machine, the number of cores on which its ranks may run, limited by their quotas.
  std::vector<std::uint32_t> machine_cores() const;
  /// The networks in which every rank has a port, in the order of rank 0's ports. Empty on one
  /// host, and if the control plane of a rank uses none of them. A network in which two hosts have
  /// the same address is left out: it does not join them.
  std::vector<std::string> shared_networks() const;
  /// The port of a rank in a network; null if it has none.
  const Port* port_in(std::uint32_t rank, const std::string& network) const;
  /// Sets the networks that carry payload: in each of them, every rank has a port. The ranks of
  /// each host use them in turn. Only as many are used as a host has ranks.
  void set_rails(std::vector<std::string> networks);
  /// For each rank, the number of its rail; all 0 with one network.
  std::vector<std::uint32_t> rails() const;
  /// The port that a rank uses. Empty texts if it is unknown.
  const Port& port(std::uint32_t rank) const;
  /// The name, number of ranks and ports in use of each host, a line for each.
  std::string ports() const;
  bool has_several_ranks_on_a_host() const { return std::ranges::max(places_) > 0; }
  /// Whether a rank is the first of its host.
  bool is_first(std::uint32_t rank) const { return places_[rank] == 0; }
  /// The ranks on this host, including this one.
  std::vector<std::uint32_t> local_ranks() const;
  std::uint32_t local_size() const noexcept;
  /// The number of ranks on this machine, and the entry of machine_cores() for it.
  std::uint32_t machine_size() const noexcept;
  std::uint32_t cores() const { return cores_of(peers_[rank_].machine); }
  /// The result of runtime::has_core_for_each() for the ranks of this machine.
  bool has_core_for_each() const;

 private:
  std::vector<CoreSet> core_sets_of(std::uint64_t machine) const;
  std::uint32_t cores_of(std::uint64_t machine) const;

  std::uint32_t rail_of(std::uint32_t rank) const;

  std::vector<PeerFacts> peers_;
  std::uint32_t rank_ = 0;
  std::vector<std::uint32_t> places_;  ///< Of each rank among the ranks of its host, from 0.
  std::vector<std::string> rails_;     ///< Networks; empty: every rank uses its first port.
};

}  // namespace xylem::runtime
