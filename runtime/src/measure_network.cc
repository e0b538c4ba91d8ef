// SPDX-License-Identifier: Apache-2.0
#include "measure_network.h"

#include "context.h"
#include "groups/group.h"
#include "measuring_pair.h"
#include "network_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

using collectives::CostModel;

/// How long one rank, at most, measures latencies and message costs in one round; and how long it
/// measures rates, in all rounds together. An exchange that has begun is completed.
constexpr std::chrono::milliseconds kLatencyBudget{5}, kRateBudget{200};
constexpr int kTrips = 60, kRepeats = 20;
constexpr std::uint32_t kStreamed = 64;
constexpr std::uint64_t kFirstBytes = 16 << 10, kMostBytes = 64 << 20;

/// What one rank has measured. In `network.host_GBps` it has the rates of its own pairs only.
struct RankSample {
  NetworkSample network;
  /// By round, half of the time of a round trip to the partner.
  std::array<double, kMostRounds> half_trips_us{};
};

/// Who measures with whom.
class Rounds {
 public:
  Rounds(const CostModel& model, std::uint32_t rank, std::uint32_t rails)
      : host_(model.host[rank]), rails_(rails) {
    ranks_.resize(std::size_t{std::ranges::max(model.host)} + 1);
    for (std::uint32_t other = 0; other < model.host.size(); ++other) {
      auto& beside = ranks_[model.host[other]];
      if (other == rank) place_ = beside.size();
      beside.push_back(other);
    }
    bits_ = measuring_bits(hosts());
  }

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(ranks_.size()); }
  std::size_t count() const { return bits_.size(); }
  /// The rank with which this rank measures in a round, if the first `most` ranks of each host do.
  std::optional<std::uint32_t> partner(std::size_t round, std::size_t most) const {
    const auto host = measuring_partner(host_, bits_[round], hosts());
    if (!host || place_ >= pairs(round, most)) return std::nullopt;
    return ranks_[*host][place_];
  }
  /// The number of pairs of ranks of this host and its partner, if the first `most` measure. Every
  /// rail has equally many pairs, if there are enough.
  std::size_t pairs(std::size_t round, std::size_t most) const {
    const auto host = measuring_partner(host_, bits_[round], hosts());
    if (!host) return 0;
    const std::size_t count = std::min({most, ranks_[host_].size(), ranks_[*host].size()});
    return count < rails_ ? count : count - count % rails_;
  }
  /// Half of the time of a round trip to the partner host, which the first rank of one of the two
  /// hosts has measured.
  double half_trip_us(std::span<const RankSample> samples, std::size_t round) const {
    const auto host = measuring_partner(host_, bits_[round], hosts());
    if (!host) return 0;
    return std::max(samples[ranks_[host_][0]].half_trips_us[round],
                    samples[ranks_[*host][0]].half_trips_us[round]);
  }
  std::optional<std::uint32_t> partner_host(std::uint32_t host, std::size_t round) const {
    return measuring_partner(host, bits_[round], hosts());
  }

 private:
  std::uint32_t host_, rails_;
  std::size_t place_ = 0;                          ///< Of this rank among the ranks of its host.
  std::vector<std::vector<std::uint32_t>> ranks_;  ///< By host.
  std::vector<std::uint32_t> bits_;
};

Status barrier(Group& world, Deadline deadline) { return complete(world, Call(), deadline); }

/// Runs `work(pair)` if this rank measures with the partner, and otherwise carries out the
/// partner's orders. Begins with a barrier, so that all pairs measure at the same time.
template <typename Measuring>
Status together(Context& context,
                Group& world,
                std::optional<std::uint32_t> partner,
                std::uint64_t longest,
                Deadline deadline,
                Measuring&& measuring) {
  XYLEM_TRY(barrier(world, deadline));
  if (!partner) return {};
  MeasuringPair pair(context, world, *partner, longest, deadline);
  if (pair.follows()) return pair.follow();
  XYLEM_TRY(measuring(pair));
  return pair.end();
}

double least(double known, double now) { return known > 0 ? std::min(known, now) : now; }

Status measure_latency(MeasuringPair& pair, RankSample& sample, std::size_t round) {
  // The first round trip makes the connection.
  XYLEM_TRY(pair.round_trip());
  XYLEM_TRY(const double half_trip, quickest(kTrips, kRepeats, Deadline::after(kLatencyBudget),
                                             [&] { return pair.round_trip(); }));
  sample.half_trips_us[round] = half_trip;
  NetworkSample& all = sample.network;
  all.half_trip_us = least(all.half_trip_us, half_trip);
  all.send_us = least(all.send_us, pair.send_us());
  // On a long link, what a message takes of a core does not matter.
  if (half_trip > in_microseconds(kLatencyBudget)) return {};
  double message = std::numeric_limits<double>::max();
  const Deadline budget = Deadline::after(kLatencyBudget);
  do {
    XYLEM_TRY(const double took, pair.stream(kStreamed));
    message = std::min(message, std::max(took - 2 * half_trip, 0.0) / kStreamed);
  } while (!budget.passed());
  all.message_us = least(all.message_us, message);
  return {};
}

double rate(std::uint64_t bytes, double took_us) {
  return static_cast<double>(bytes) / std::max(took_us, 1.0) / 1e3;
}

/// The rate of one pair of ranks; 0 if messages take too long to measure it. `budget_us`: how long
/// to measure.
Result<double> measure_flow(MeasuringPair& pair, double half_trip_us, double budget_us) {
  // TCP sends its first bytes in several round trips.
  constexpr double kSlowStart = 8;
  if (kSlowStart * half_trip_us > budget_us) return 0.0;
  // Exchanges grow until one takes an eighth of the budget, and much longer than a round trip. This
  // also fills queues on the way, and uses up what a network lets pass at first.
  constexpr double kLongEnough = 8, kOfATrip = 4;
  std::uint64_t bytes = kFirstBytes / 2;
  double took = 0, spent = 0;
  const auto is_long = [&] {
    return kLongEnough * took >= budget_us && took >= kOfATrip * 2 * half_trip_us;
  };
  do {
    bytes *= 2;
    XYLEM_TRY(took, pair.exchange(bytes));
    spent += took;
  } while (!is_long() && spent < budget_us && 2 * bytes <= kMostBytes);
  if (!is_long() && spent >= budget_us) return 0.0;
  if (2 * took < budget_us) {
    XYLEM_TRY(took, pair.exchange(bytes));
  }
  return rate(bytes, took - 2 * half_trip_us);
}

/// The samples of all ranks.
Result<std::vector<RankSample>> gather(Group& world, const RankSample& mine, Deadline deadline) {
  std::vector<RankSample> all(world.spec().size());
  XYLEM_TRY(all_gather(world, &mine, sizeof mine, all.data(), deadline));
  return all;
}

/// The samples of the hosts, from those of their ranks. All pairs of two hosts send the same number
/// of bytes, and the last one to finish determines their rate: the others may have taken its share.
std::vector<NetworkSample> of_hosts(const Rounds& rounds,
                                    const CostModel& model,
                                    std::span<const RankSample> ranks) {
  std::vector<NetworkSample> hosts(rounds.hosts());
  std::vector<std::array<int, kMostRounds>> pairs(rounds.hosts());
  const auto keep_least = [](double& known, double now) {
    if (now > 0) known = least(known, now);
  };
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const NetworkSample& sample = ranks[rank].network;
    const std::uint32_t own = model.host[rank];
    keep_least(hosts[own].half_trip_us, sample.half_trip_us);
    keep_least(hosts[own].send_us, sample.send_us);
    keep_least(hosts[own].message_us, sample.message_us);
    hosts[own].flow_GBps = std::max(hosts[own].flow_GBps, sample.flow_GBps);
    for (std::size_t round = 0; round < rounds.count(); ++round) {
      const auto partner = rounds.partner_host(own, round);
      if (!partner || sample.host_GBps[round] <= 0) continue;
      for (const std::uint32_t host : {own, *partner}) {
        keep_least(hosts[host].host_GBps[round], sample.host_GBps[round]);
        ++pairs[host][round];
      }
    }
  }
  for (std::uint32_t host = 0; host < rounds.hosts(); ++host) {
    for (std::size_t round = 0; round < rounds.count(); ++round) {
      hosts[host].host_GBps[round] *= pairs[host][round];
    }
  }
  return hosts;
}

}  // namespace

Result<std::vector<NetworkSample>> measure_network(Context& context,
                                                   Group& world,
                                                   const CostModel& model,
                                                   Deadline deadline) {
  const std::uint32_t rails = std::ranges::max(context.wires->hosts().rails()) + 1;
  const Rounds rounds(model, world.spec().rank, rails);
  if (rounds.hosts() < 2) return std::vector<NetworkSample>(1);
  const std::uint64_t slice = context.config().slice.value;
  const auto sessions = static_cast<double>(rounds.count() * 2);
  const double budget_us = in_microseconds(kRateBudget) / sessions;
  RankSample mine;
  auto& rates = mine.network.host_GBps;
  for (std::size_t round = 0; round < rounds.count(); ++round) {
    const auto partner = rounds.partner(round, 1);
    const auto latency = [&](MeasuringPair& pair) { return measure_latency(pair, mine, round); };
    XYLEM_TRY(together(context, world, partner, kFirstBytes, deadline, latency));
    const auto flow = [&](MeasuringPair& pair) -> Status {
      XYLEM_TRY(rates[round], measure_flow(pair, mine.half_trips_us[round], budget_us));
      mine.network.flow_GBps = std::max(mine.network.flow_GBps, rates[round]);
      return {};
    };
    XYLEM_TRY(together(context, world, partner, slice, deadline, flow));
  }
  XYLEM_TRY(auto ranks, gather(world, mine, deadline));
  const std::vector<NetworkSample> hosts = of_hosts(rounds, model, ranks);
  const auto has_no_rate = [](const NetworkSample& host) {
    return std::ranges::max(host.host_GBps) <= 0;
  };
  if (std::ranges::all_of(hosts, has_no_rate)) return hosts;
  // Now all hosts at the same time, with several pairs of ranks each. The pairs know how much they
  // can send in the same time, so that none has a link for itself when others have finished.
  const NetworkSample& own = hosts[model.host[world.spec().rank]];
  for (std::size_t round = 0; round < rounds.count(); ++round) {
    rates[round] = 0;
    const double half_trip_us = rounds.half_trip_us(ranks, round);
    const auto pairs = static_cast<double>(rounds.pairs(round, kMostPairs));
    const double fits = own.host_GBps[round] * 1e3 * budget_us / 2 / std::max(pairs, 1.0);
    const auto bytes = static_cast<std::uint64_t>(std::min(fits, double{kMostBytes}));
    const auto partner = bytes > 0 ? rounds.partner(round, kMostPairs) : std::nullopt;
    // The first exchange makes the connections, and fills the queues on the way.
    const auto prepare = [&](MeasuringPair& pair) -> Status {
      XYLEM_TRY(pair.exchange(bytes));
      return {};
    };
    XYLEM_TRY(together(context, world, partner, slice, deadline, prepare));
    const auto share = [&](MeasuringPair& pair) -> Status {
      XYLEM_TRY(const double took, pair.exchange(bytes));
      rates[round] = rate(bytes, std::max(took - 2 * half_trip_us, took / 2));
      return {};
    };
    XYLEM_TRY(together(context, world, partner, slice, deadline, share));
  }
  XYLEM_TRY(ranks, gather(world, mine, deadline));
  return of_hosts(rounds, model, ranks);
}

}  // namespace xylem::runtime
