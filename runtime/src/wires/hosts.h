// SPDX-License-Identifier: Apache-2.0
//
// Hosts: on which host and machine each rank of a job is, and which cores the ranks of a machine
// share. The ranks of a host can share memory (PeerFacts::kernel). The ranks of a machine share its
// cores (PeerFacts::machine); containers on one machine are hosts of their own. A Hosts object is
// the same on all ranks, except for the number of this rank.
#pragma once

#include "wires/peer_facts.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace xylem::runtime {

class Hosts {
 public:
  Hosts() = default;
  /// `peers` has the facts of all ranks, in rank order; `rank` is this rank.
  Hosts(std::vector<PeerFacts> peers, std::uint32_t rank) : peers_(std::move(peers)), rank_(rank) {}

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
  /// The name, number of ranks and port (PeerFacts::port) of each host, a line for each.
  std::string ports() const;
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

  std::vector<PeerFacts> peers_;
  std::uint32_t rank_ = 0;
};

}  // namespace xylem::runtime
