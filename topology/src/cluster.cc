// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/cluster.h"

#include "text.h"
#include "xylem/topology/assignment.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

constexpr double kBitsPerByte = 8;

std::optional<GBps> lesser(std::optional<GBps> a, std::optional<GBps> b) {
  return a && b ? std::optional(std::min(*a, *b)) : a ? a : b;
}

/// Splits a clause such as "latency 3 us" into words.
std::vector<std::string_view> words_of(std::string_view clause) {
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = clause.find_first_not_of(' ');
    if (begin == std::string_view::npos) return words;
    clause.remove_prefix(begin);
    words.push_back(clause.substr(0, clause.find(' ')));
    clause.remove_prefix(words.back().size());
  }
}

Status refuse(std::string_view clause, std::string_view rule) {
  return failure(Code::invalid_argument, fmt::format("network \"{}\": {}", excerpt(clause), rule));
}

Status read_clause(std::string_view clause,
                   NetworkFacts& facts,
                   std::vector<std::string_view>& seen) {
  const auto words = words_of(clause);
  if (words.empty()) return refuse(clause, "a clause between commas is empty");
  // A word that is not a number becomes -1, which violates all the rules below.
  const double number = words.size() > 1 ? parse_real(words[1]).value_or(-1) : -1;
  const std::string_view unit = words.size() == 3 ? words[2] : std::string_view();
  if (std::ranges::find(seen, words[0]) != seen.end()) return refuse(clause, "it is said twice");
  seen.push_back(words[0]);
  if (words[0] == "oversubscription") {
    constexpr double kMost = 1000;
    if (words.size() != 2 || !(number >= 1 && number <= kMost)) {
      return refuse(clause, "oversubscription is a number from 1 to 1000");
    }
    facts.oversubscription = number;
  } else if (words[0] == "latency") {
    constexpr double kMost = 1e6;
    if (unit != "us" || !(number >= 0 && number <= kMost)) {
      return refuse(clause, "a latency is in microseconds up to a second, such as 3 us");
    }
    facts.latency_us = number;
  } else if (words[0] == "rail") {
    const GBps rate{number / kBitsPerByte};
    if (unit != "Gb/s" || !(rate >= kLeastBandwidth && rate <= kMostBandwidth)) {
      return refuse(clause, "a rail's rate is in gigabits, such as 200 Gb/s");
    }
    facts.rail_rate = rate;
  } else {
    return refuse(clause, "say oversubscription, latency or rail, such as \"oversubscription 2\"");
  }
  return {};
}

}  // namespace

Result<NetworkFacts> read_network(std::string_view text) {
  NetworkFacts facts;
  std::vector<std::string_view> seen;
  if (words_of(text).empty()) return facts;
  while (true) {
    const auto comma = text.find(',');
    XYLEM_TRY(read_clause(text.substr(0, comma), facts, seen));
    if (comma == std::string_view::npos) return facts;
    text.remove_prefix(comma + 1);
  }
}

std::optional<GBps> Cluster::host_rate() const {
  // A host without known NICs counts as a host with one NIC of the stated rate.
  if (rails.empty()) {
    if (!network.rail_rate) return std::nullopt;
    return GBps{network.rail_rate->value / network.oversubscription};
  }
  double sum = 0;
  for (const Rail& rail : rails) {
    if (!rail.rate) return std::nullopt;
    sum += rail.rate->value;
  }
  return GBps{sum / network.oversubscription};
}

Result<Cluster> make_cluster(std::vector<Topology> hosts, const NetworkFacts& network) {
  if (hosts.empty()) return failure(Code::invalid_argument, "a cluster has at least one host");
  Cluster cluster{std::move(hosts), network, {}};
  std::vector<std::vector<std::uint32_t>> rails;
  rails.reserve(cluster.hosts.size());
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
    // Equal hosts are usually copies of one Topology, whose rails are then computed only once.
    const Topology& before = cluster.hosts[host > 0 ? host - 1 : 0];
    const bool is_copy = host > 0 && &cluster.hosts[host].machine() == &before.machine();
    rails.push_back(is_copy ? rails.back() : assign_nics(cluster.hosts[host]).rails);
  }
  const std::size_t count =
      std::ranges::min(rails, {}, [](const auto& of_host) { return of_host.size(); }).size();
  for (std::size_t i = 0; i < count; ++i) {
    Rail& rail = cluster.rails.emplace_back();
    rail.rate = network.rail_rate;
    for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
      rail.nics.push_back(rails[host][i]);
      rail.rate = lesser(rail.rate, rate_of(cluster.hosts[host].nics()[rails[host][i]]));
    }
  }
  return cluster;
}

}  // namespace xylem::topology
