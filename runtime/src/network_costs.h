// SPDX-License-Identifier: Apache-2.0
//
// The cost of messages between hosts, from measurements of pairs of hosts.
//
// Hosts are measured in rounds. In each round every host is in at most one pair, and all pairs
// measure at the same time: in the round of bit b, host h and host h XOR 2^b are a pair. So the
// best rate of a host over all rounds is the rate of its port. If the pairs of a round are slower
// than their ports, something between them is slower: hosts whose numbers are equal from bit b on
// share a trunk. Launchers usually number hosts rack by rack. Rates that differ by less than 20 %
// count as equal, so that equal hosts stay equal in the model.
#pragma once

#include "xylem/collectives/cost_model.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::runtime {

/// The largest number of rounds.
inline constexpr std::size_t kMostRounds = 4;
/// The most pairs of ranks that measure the rate between two hosts together.
inline constexpr std::size_t kMostPairs = 4;

/// What one host has measured. A rate or time of 0 has not been measured.
struct NetworkSample {
  double half_trip_us = 0;  ///< Half of the least time of a round trip of a small message.
  double send_us = 0;       ///< Time of a core to send a small message.
  double message_us = 0;    ///< Time for each of many small messages that are sent at once.
  /// The best rate of one pair of ranks, in each direction while both directions are in use.
  double flow_GBps = 0;
  /// By round, the total rate of the pairs of ranks of this host and its partner.
  std::array<double, kMostRounds> host_GBps{};
};

/// The bits of the rounds for this number of hosts, ascending; at most kMostRounds. If there are
/// more bits, the lowest and the highest ones are used, and some between them.
std::vector<std::uint32_t> measuring_bits(std::uint32_t hosts);
/// The partner of a host in the round of a bit; absent if there is no such host.
std::optional<std::uint32_t> measuring_partner(std::uint32_t host,
                                               std::uint32_t bit,
                                               std::uint32_t hosts);

/// Whether the rate of every host has been measured; true if there is only one host.
bool is_measured(std::span<const NetworkSample> samples);

/// Sets CostModel::remote, remote_send_us, remote_receive_us and network from the samples of all
/// hosts. The model must have the host of each rank; `rails` has its rail (Hosts::rails()). A host
/// has one port for each rail that its ranks use. What has not been measured at any host keeps its
/// value.
void set_network(collectives::CostModel& model,
                 std::span<const NetworkSample> samples,
                 std::span<const std::uint32_t> rails);

}  // namespace xylem::runtime
