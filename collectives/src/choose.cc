// SPDX-License-Identifier: Apache-2.0
//
// Choice by prediction. All schedules of a plan are made, and simulated in virtual time. If the
// schedules have too many steps in total, the time of the call is extrapolated from calls on fewer
// hosts and with fewer ranks per host, so the cost of choosing is bounded.
#include "xylem/collectives/choose.h"

#include "simulation.h"
#include "xylem/base/quantity.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/rename.h"
#include "xylem/collectives/staging.h"
#include "xylem/collectives/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

namespace xylem::collectives {
namespace {

bool all_differ(std::vector<std::uint32_t> numbers) {
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) == numbers.end();
}

// If the simulated ranks have at most this many steps in total, the call is simulated exactly. The
// time of a larger call is extrapolated from smaller calls. A ring of 110 ranks or a tree of 6000
// ranks has about this many steps.
constexpr std::uint64_t kExactSteps = 60000;
// The limit in place of kExactSteps if ranks share cores. Such ranks run at different times, so no
// rank can represent another rank of its host, and all ranks of a host are simulated.
constexpr std::uint64_t kExactSharedSteps = 10000;

// The ranks to simulate, 0 … count − 1. With a symmetry they represent all other ranks; without a
// symmetry they are all ranks.
struct Actors {
  std::optional<Symmetry> symmetry;
  std::uint32_t count;
};

// A call, and the cost model of its ranks. The ranks are numbered as in the plans: if the call has
// places (rename.h), `shape` and `model` are those of the places.
struct PredictionInput {
  Shape shape;
  std::uint64_t bytes;
  CostModel model;
};

// Stages the messages of a schedule if the model requires this: the messages to and from all peers
// if `stages_local`, otherwise only those to and from peers on other hosts.
Schedule staged(Schedule schedule, const CostModel& model) {
  if (!model.compute.is_staged()) return schedule;
  Staging staging = staged_messages(schedule.shape.ranks);
  for (std::uint32_t peer = 0; peer < schedule.shape.ranks; ++peer) {
    if (model.compute.stages_local || !model.are_together(schedule.rank, peer)) continue;
    staging.sends[peer] = staging.receives[peer] = false;
  }
  return stage(schedule, staging);
}

Schedule schedule_of(const Planner& planner, const PredictionInput& call, std::uint32_t rank) {
  return staged(planner.plan(call.shape, rank), call.model);
}

// Whether moving all ranks by one host maps the ports of the level to ports of equal rates.
bool is_alike(const PortLevel& level, std::uint32_t per_host) {
  const auto ranks = static_cast<std::uint32_t>(level.port.size());
  std::map<std::uint32_t, std::uint32_t> images;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t port = level.port[rank], image = level.port[(rank + per_host) % ranks];
    if (images.try_emplace(port, image).first->second != image) return false;
    if (level.rate_GBps[port] != level.rate_GBps[image]) return false;
  }
  return true;
}

// Whether moving all ranks by one host changes nothing: all hosts have the same number of
// consecutive ranks, and equal ports.
bool are_alike(const PredictionInput& call) {
  const CostModel& model = call.model;
  if (model.host.empty()) return true;
  return (call.shape.per_host > 1 || all_differ(model.host)) &&
         std::ranges::all_of(model.network, [&](const PortLevel& level) {
           return is_alike(level, call.shape.per_host);
         });
}

bool shares_cores(const PredictionInput& call) { return call.model.shares_cores(call.shape.ranks); }

bool has_hosts_of_one_machine(const CostModel& model) {
  if (model.machine.empty() || model.host.empty()) return false;
  std::map<std::uint32_t, std::uint32_t> host_of;  // Of each machine.
  for (std::size_t rank = 0; rank < model.machine.size(); ++rank) {
    if (host_of.try_emplace(model.machine[rank], model.host[rank]).first->second !=
        model.host[rank]) {
      return true;
    }
  }
  return false;
}

// Whether all blocks have about the same size. If the planner chooses the number of blocks
// (has_free_parts), a block consists of whole cache lines. Blocks of only a few lines then differ a
// lot in size, and so do the times of the ranks.
bool has_even_blocks(const Planner& planner, const PredictionInput& call) {
  constexpr std::uint64_t kManyLines = 8;
  return !has_free_parts(call.shape.collective) ||
         call.bytes >= kManyLines * kPartAlignment * planner.plan(call.shape, 0).blocks;
}

Actors actors_of(const Planner& planner, const PredictionInput& call) {
  const Shape& shape = call.shape;
  if (planner.symmetry == nullptr || !are_alike(call) || !has_even_blocks(planner, call)) {
    return {std::nullopt, shape.ranks};
  }
  auto symmetry = planner.symmetry(shape);
  const bool shares = shares_cores(call);
  if (shape.per_host == shape.ranks && !shares) return {symmetry, symmetry.representatives()};
  // Hosts of one machine run at different times if they share its cores.
  if (shares && has_hosts_of_one_machine(call.model)) return {std::nullopt, shape.ranks};
  if (auto part = symmetry.with_representatives(shape.per_host)) return {part, shape.per_host};
  return {std::nullopt, shape.ranks};
}

double predict_exactly(const Planner& planner, const PredictionInput& call) {
  const Actors actors = actors_of(planner, call);
  std::vector<Schedule> ranks;
  ranks.reserve(actors.count);
  for (std::uint32_t rank = 0; rank < actors.count; ++rank) {
    ranks.push_back(schedule_of(planner, call, rank));
  }
  const Counts counts{.count = call.bytes};
  return actors.symmetry ? estimate_us(ranks, *actors.symmetry, counts, call.model)
                         : estimate_us(ranks, counts, call.model);
}

// What halved() halves: the number of hosts, or the number of ranks on each host.
enum class Along { hosts, ranks };

// The host of each rank, numbered in the order of their first ranks.
std::vector<std::uint32_t> numbered_hosts(const PredictionInput& call) {
  std::vector<std::uint32_t> numbers(call.shape.ranks);
  std::map<std::uint32_t, std::uint32_t> seen;
  for (std::uint32_t rank = 0; rank < numbers.size() && !call.model.host.empty(); ++rank) {
    const auto next = static_cast<std::uint32_t>(seen.size());
    numbers[rank] = seen.try_emplace(call.model.host[rank], next).first->second;
  }
  return numbers;
}

// Sets per_host and host_sizes of a shape. If the ranks of a host are not consecutive, plans do not
// depend on hosts.
void set_hosts(Shape& shape, std::span<const std::uint32_t> host) {
  Placement where = placement(host, shape.ranks);
  const bool are_consecutive = where.order.empty();
  shape.per_host = are_consecutive ? where.per_host : 1;
  shape.host_sizes = are_consecutive ? std::move(where.host_sizes) : std::vector<std::uint32_t>();
}

// The call on some of the ranks only. The cores of a machine become fewer like its ranks.
PredictionInput part_of(const PredictionInput& call, std::span<const std::uint32_t> ranks) {
  PredictionInput part{call.shape, call.bytes, call.model.of_ranks(ranks)};
  part.shape.ranks = static_cast<std::uint32_t>(ranks.size());
  part.shape.root = std::min(part.shape.root, part.shape.ranks - 1);
  set_hosts(part.shape, part.model.host);
  auto& cores = part.model.machine_cores;
  std::vector<std::uint32_t> before(cores.size()), after(cores.size());
  const auto count = [&](const PredictionInput& of, std::vector<std::uint32_t>& counts) {
    for (std::uint32_t rank = 0; rank < of.shape.ranks; ++rank) {
      const std::uint32_t machine = of.model.machine_of(rank);
      if (machine < counts.size()) ++counts[machine];
    }
  };
  count(call, before);
  count(part, after);
  for (std::size_t machine = 0; machine < cores.size(); ++machine) {
    const std::uint32_t all = std::max(before[machine], 1U);
    cores[machine] = (cores[machine] * after[machine] + all - 1) / all;
  }
  return part;
}

// The number of the host behind the slowest port, by numbered_hosts().
std::uint32_t slowest_host(const PredictionInput& call, std::span<const std::uint32_t> hosts) {
  std::uint32_t slowest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const PortLevel& level : call.model.network) {
    for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
      const double rate = level.rate_GBps[level.port[rank]];
      if (rate < least) least = rate, slowest = hosts[rank];
    }
  }
  return slowest;
}

// The same call on half of the hosts, or with half of the ranks on each host. If the hosts are not
// alike, every other host is removed, but not the slowest one.
PredictionInput halved(const PredictionInput& call, Along along) {
  const auto hosts = numbered_hosts(call);
  const std::uint32_t count = std::ranges::max(hosts) + 1;
  const bool alike = are_alike(call);
  const std::uint32_t kept_parity = slowest_host(call, hosts) % 2;
  std::vector<std::uint32_t> kept, seen(count);  // seen: how many ranks of each host, so far.
  for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
    const std::uint32_t host = hosts[rank];
    const bool is_kept = along == Along::ranks ? seen[host]++ % 2 == 0
                         : alike               ? host < (count + 1) / 2
                                               : host % 2 == kept_parity;
    if (is_kept) kept.push_back(rank);
  }
  return part_of(call, kept);
}

// Whether the call may be halved. At least eight hosts remain, since extrapolate() halves the
// result twice more: even two hosts still communicate over the network.
bool can_halve(const PredictionInput& call, Along along) {
  constexpr std::uint32_t kFewestHosts = 8;
  const std::uint32_t hosts = std::ranges::max(numbered_hosts(call)) + 1;
  return along == Along::hosts ? hosts >= 2 * kFewestHosts : call.shape.ranks >= 2 * hosts;
}

// The number of steps to simulate, assuming that all ranks except the root have equally many.
std::uint64_t count_steps(const Planner& planner, const PredictionInput& call) {
  const Shape& shape = call.shape;
  const auto steps_of = [&](std::uint32_t rank) -> std::uint64_t {
    return schedule_of(planner, call, rank).steps.size();
  };
  const std::uint32_t actors = actors_of(planner, call).count;
  return steps_of(shape.root) + steps_of((shape.root + 1) % shape.ranks) * (actors - 1);
}

// The largest call with few enough steps that halving `along` hosts or ranks per host leads to, and
// the number of halvings.
std::pair<PredictionInput, int> small_enough(const Planner& planner,
                                             const PredictionInput& call,
                                             Along along) {
  int halvings = 0;
  PredictionInput part = call;
  const std::uint64_t most = shares_cores(call) ? kExactSharedSteps : kExactSteps;
  while (can_halve(part, along) && count_steps(planner, part) > most) {
    part = halved(part, along);
    ++halvings;
  }
  return {std::move(part), halvings};
}

// Predicts the time of a call. If it has too many steps, it is halved `along` hosts or ranks per
// host until it is small enough, and the time is extrapolated: if the times for n/8, n/4 and n/2
// hosts differ by d and r·d, the next doubling is assumed to add r²·d. This is exact for times that
// grow with log n (r = 1) or with n (r = 2), and for times that converge (r < 1). predict(call)
// returns the time of a smaller call.
template <typename Predict>
double extrapolate(const Planner& planner,
                   const PredictionInput& call,
                   Along along,
                   Predict&& predict) {
  const auto [part, halvings] = small_enough(planner, call, along);
  double time = predict(part);
  if (halvings == 0) return time;
  const PredictionInput half = halved(part, along);
  const double half_us = predict(half);
  const double quarter_us = predict(halved(half, along));
  const double ratio =
      half_us > quarter_us ? std::clamp((time - half_us) / (half_us - quarter_us), 0.0, 4.0) : 0.0;
  double growth = time - half_us;
  for (int i = 0; i < halvings; ++i) time += growth *= ratio;
  return time;
}

double predict_us(const Planner& planner, const PredictionInput& call) {
  return extrapolate(planner, call, Along::hosts, [&](const PredictionInput& fewer_hosts) {
    return extrapolate(planner, fewer_hosts, Along::ranks,
                       [&](const PredictionInput& smaller_hosts) {
                         return predict_exactly(planner, smaller_hosts);
                       });
  });
}

// Which ranks predict_us() simulates, and how many.
std::pair<Simulated, std::uint32_t> simulated_ranks(const Planner& planner,
                                                    const PredictionInput& call) {
  const auto [fewer_hosts, hosts_halved] = small_enough(planner, call, Along::hosts);
  const auto [part, ranks_halved] = small_enough(planner, fewer_hosts, Along::ranks);
  const Actors actors = actors_of(planner, part);
  if (hosts_halved + ranks_halved > 0) return {Simulated::fewer_ranks, actors.count};
  return {actors.symmetry ? Simulated::representatives : Simulated::all_ranks, actors.count};
}

// With more than kInStep peers on other hosts, ranks that nothing keeps in step take about
// kOutOfStep times as long as predicted (docs/benchmarks.md, all_to_all on 8 hosts).
constexpr std::uint32_t kInStep = 3;
constexpr double kOutOfStep = 1.5;

// The most bytes of scratch_beyond_rings() that an algorithm should use at a rank. The scratch is
// computed for the smallest size of a size class; the largest sizes need up to twice as much.
// Between hosts it is more: plans in which a rank has few peers need it, and the flows of other
// plans meet at the ports (reduce_scatter of 64 MiB on 4 hosts: ring .952 of the link, direct
// .853).
constexpr std::uint64_t kMostScratch = 16 << 20, kMostScratchBetweenHosts = 64 << 20;
// An algorithm that needs more is chosen only if every algorithm that needs less takes more than
// kPriceOfMemory times as long.
constexpr double kPriceOfMemory = 1.25;

// What a plan needs at the rank that needs most, and whether verify() can prove it.
struct Needs {
  std::uint64_t scratch = 0;  // scratch_beyond_rings()
  std::uint32_t peers = 0;    // On other hosts.
  bool is_provable = false;
};

std::uint32_t peers_on_other_hosts(const Schedule& schedule, const CostModel& model) {
  std::set<std::uint32_t> peers;
  for (const Step& step : schedule.steps) {
    if (step.peer != kNone && !model.are_together(schedule.rank, step.peer)) {
      peers.insert(step.peer);
    }
  }
  return static_cast<std::uint32_t>(peers.size());
}

// The needs of up to eight ranks: the first four ranks, and the four ranks from the root on. Other
// ranks are not examined, to save time. The first ranks are examined because some planners begin by
// merging the data of pairs of the first ranks (fold.h).
Needs needs_of(const Planner& planner, const PredictionInput& call) {
  constexpr std::uint32_t kLooks = 4;
  const Shape& shape = call.shape;
  Needs needs;
  const auto look_at = [&](std::uint32_t rank) {
    const Schedule schedule = planner.plan(shape, rank);
    needs.scratch = std::max(needs.scratch, scratch_beyond_rings(schedule, {.count = call.bytes}));
    needs.peers = std::max(needs.peers, peers_on_other_hosts(schedule, call.model));
  };
  for (std::uint32_t i = 0; i < std::min(kLooks, shape.ranks); ++i) {
    look_at(i);
    if (shape.root != 0) look_at((shape.root + i) % shape.ranks);
  }
  // All ranks but the root are assumed to have schedules of about the same size.
  const Schedule root = planner.plan(shape, shape.root);
  const Schedule other = planner.plan(shape, (shape.root + 1) % shape.ranks);
  const std::uint64_t chunks = proof_chunks(root) + proof_chunks(other) * (shape.ranks - 1);
  const bool has_symmetry =
      planner.symmetry != nullptr &&
      proof_chunks(other) * planner.symmetry(shape).representatives() <= kMostProvenChunks &&
      root.steps.size() * shape.ranks <= kMostStepsBySymmetry;
  needs.is_provable = chunks <= kMostProvenChunks || has_symmetry;
  return needs;
}

struct Prediction {
  const Planner* planner;
  const PredictionInput* call;
  double us;
  std::uint64_t scratch;  // 0 if it is modest.
  Needs needs;
  std::string_view advantage{};  // Why it is chosen although another one is as fast.
};

// The bytes that ranks send to other hosts: those of all ranks or, if there are many, those of the
// first hosts.
std::uint64_t bytes_between_hosts(const Prediction& plan) {
  constexpr std::uint32_t kMany = 512, kLooks = 64;
  const auto& [shape, bytes, model] = *plan.call;
  const auto hosts = numbered_hosts(*plan.call);
  std::vector<std::uint32_t> sizes(std::ranges::max(hosts) + 1);
  for (const std::uint32_t host : hosts) ++sizes[host];
  std::uint32_t end = 0;  // The hosts before this one are counted.
  for (std::uint32_t ranks = 0; end < sizes.size() && (shape.ranks <= kMany || ranks < kLooks);) {
    ranks += sizes[end++];
  }
  std::uint64_t sum = 0;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    if (hosts[rank] >= end) continue;
    const Schedule schedule = plan.planner->plan(shape, rank);
    const Layout layout(schedule, {.count = bytes});
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::send || model.are_together(rank, step.peer)) continue;
      sum += step_bytes(schedule, layout, step);
    }
  }
  return sum;
}

// Of algorithms whose predicted times differ by less than this factor, the one that sends the
// fewest bytes between hosts is chosen: predictions are not more exact, and others use the network,
// too. Of those with equal bytes, it is the one whose ranks have the fewest peers: flows that meet
// at a port overflow its queue.
constexpr double kEqual = 1.02;

// Moves the algorithm with the least load on the network to the front, of those at the front that
// are as fast and need as little scratch.
void prefer_least_load(std::vector<Prediction>& result) {
  const auto is_other = [&](const Prediction& p) {
    return p.us > kEqual * result.front().us || p.scratch > result.front().scratch;
  };
  const auto others = std::ranges::find_if(result, is_other);
  if (others - result.begin() <= 1) return;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> load;  // Bytes and peers.
  for (auto it = result.begin(); it != others; ++it)
    load.emplace_back(bytes_between_hosts(*it), it->needs.peers);
  const auto fewest = result.begin() + (std::ranges::min_element(load) - load.begin());
  if (fewest != result.begin()) {
    fewest->advantage =
        load[static_cast<std::size_t>(fewest - result.begin())].first < load.front().first
            ? "sends fewer bytes between hosts"
            : "its ranks have fewer peers on other hosts";
  }
  std::rotate(result.begin(), fewest, fewest + 1);
}

// The predictions for all planners of the collective, except planners that would make the same plan
// as another planner. If possible, plans that verify() cannot prove, and plans whose ranks have
// more than CostModel::most_peers peers on other hosts, are left out. Plans that cannot be renamed
// are made for ranks, the others for places. The fastest planner comes first; equal times keep the
// order of registration. But if the fastest planner needs too much scratch, the fastest
// planner that needs less comes first, provided that it takes at most kPriceOfMemory times as long.
std::vector<Prediction> predict_all(std::span<const Planner> candidates,
                                    const PredictionInput& by_place,
                                    const PredictionInput& by_rank,
                                    std::string_view forced) {
  const Shape& shape = by_place.shape;
  const bool has_levels =
      !shape.host_sizes.empty() || (shape.per_host > 1 && shape.per_host < shape.ranks);
  const auto& hosts = by_place.model.host;
  const bool is_one_host =
      std::ranges::all_of(hosts, [&](std::uint32_t host) { return host == hosts.front(); });
  const std::uint64_t most_scratch = is_one_host ? kMostScratch : kMostScratchBetweenHosts;
  std::vector<Prediction> result;
  for (const Planner& planner : candidates) {
    if (planner.collective != shape.collective) continue;
    // If there is one host or one rank per host, this planner makes the same plan as another
    // planner.
    if (planner.takes_hosts && !has_levels && planner.name != forced) continue;
    const PredictionInput& call = planner.moves_ranges ? by_rank : by_place;
    const Needs needs = needs_of(planner, call);
    const std::uint64_t scratch = needs.scratch > most_scratch ? needs.scratch : 0;
    result.push_back({&planner, &call, 0, scratch, needs, {}});
  }
  const auto keep_only = [&](auto&& is_good) {
    if (std::ranges::none_of(result, is_good)) return;
    std::erase_if(result,
                  [&](const Prediction& p) { return !is_good(p) && p.planner->name != forced; });
  };
  keep_only([](const Prediction& p) { return p.needs.is_provable; });
  keep_only([&](const Prediction& p) { return p.needs.peers <= by_place.model.most_peers; });
  for (Prediction& prediction : result) {
    prediction.us = predict_us(*prediction.planner, *prediction.call);
    if (prediction.planner->falls_out_of_step && prediction.needs.peers > kInStep)
      prediction.us *= kOutOfStep;
  }
  std::ranges::sort(result, [](const Prediction& a, const Prediction& b) {
    return std::tie(a.us, a.planner) < std::tie(b.us, b.planner);
  });
  const auto modest = std::ranges::find(result, 0U, &Prediction::scratch);
  if (modest != result.end() && modest->us <= kPriceOfMemory * result.front().us)
    std::rotate(result.begin(), modest, modest + 1);
  if (!is_one_host) prefer_least_load(result);
  return result;
}

std::string explain(const Prediction& best, const Prediction& next) {
  if (best.call->shape.ranks == 1)
    return "one rank has no one to talk to, so all algorithms are alike";
  if (next.us < best.us && next.scratch > best.scratch) {
    return fmt::format(
        "needs little memory: {} is predicted to take {:.4g} us, but needs {} of scratch",
        next.planner->name, next.us, format_bytes(Bytes{next.scratch}));
  }
  if (!best.advantage.empty()) {
    return fmt::format("as fast as {} ({:.4g} us), and {}", next.planner->name, next.us,
                       best.advantage);
  }
  if (best.us == next.us)
    return fmt::format("as fast as {}, and registered before it", next.planner->name);
  const auto latency = [](const Prediction& p) {
    PredictionInput little = *p.call;
    little.bytes = std::min(little.bytes, kPartAlignment);
    return std::min(p.us, predict_us(*p.planner, little));
  };
  const double best_latency = latency(best);
  const double next_latency = latency(next);
  const double best_data = best.us - best_latency;
  const double next_data = next.us - next_latency;
  if (next_latency - best_latency >= next_data - best_data) {
    return fmt::format("fewer latencies in a row: {:.4g} us of them against {:.4g} us with {}",
                       best_latency, next_latency, next.planner->name);
  }
  return fmt::format(
      "moves the data faster: {:.4g} us beyond the latencies against {:.4g} us with {}", best_data,
      next_data, next.planner->name);
}

// All sizes of a class get the choice for the smallest of them, which is a power of two or 0.
int size_class(std::uint64_t bytes) { return static_cast<int>(std::bit_width(bytes)); }
std::uint64_t bytes_of(int size_class) {
  return size_class == 0 ? 0 : std::uint64_t{1} << (size_class - 1);
}

}  // namespace

double Choice::predict_us(std::uint64_t bytes) const {
  PredictionInput call{shape, bytes, *model};
  if (!order.empty()) call.model = model->of_ranks(order);
  return collectives::predict_us(*planner, call);
}

Schedule Choice::plan(std::uint32_t rank) const {
  const auto place =
      order.empty() ? rank
                    : static_cast<std::uint32_t>(std::ranges::find(order, rank) - order.begin());
  return renamed(planner->plan(shape, place), order);
}

Schedule Choice::schedule(std::uint32_t rank) const { return staged(plan(rank), *model); }

Result<Choice> Chooser::choose(const Shape& stated, std::uint64_t bytes, std::string_view forced) {
  const int size = size_class(bytes);
  const auto key =
      std::tuple(stated.collective, stated.ranks, stated.root, size, std::string(forced));
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;

  Placement where = placement(model_->host, stated.ranks, stated.root);
  PredictionInput by_place{stated, bytes_of(size), *model_};
  if (!where.order.empty()) {
    by_place.model = model_->of_ranks(where.order);
    by_place.shape.root = 0;
  }
  by_place.shape.per_host = where.per_host;
  by_place.shape.host_sizes = where.host_sizes;
  PredictionInput by_rank = by_place;
  if (!where.order.empty()) {
    // The ranks of a host are not consecutive.
    by_rank = {stated, by_place.bytes, *model_};
    by_rank.shape.per_host = 1;
    by_rank.shape.host_sizes.clear();
  }
  const std::vector<Prediction> all = predict_all(candidates_, by_place, by_rank, forced);
  auto best = all.begin();
  if (!forced.empty()) {
    best =
        std::ranges::find_if(all, [&](const Prediction& p) { return p.planner->name == forced; });
    if (best == all.end()) {
      std::vector<std::string_view> names;
      for (const Planner& planner : candidates_) {
        if (planner.collective == stated.collective) names.push_back(planner.name);
      }
      return failure(Code::invalid_argument,
                     fmt::format("no algorithm '{}' for {}: use one of {}", forced.substr(0, 40),
                                 name(stated.collective), fmt::join(names, ", ")));
    }
  }
  const auto next = best != all.begin() ? all.begin()
                    : all.size() > 1    ? all.begin() + 1
                                        : all.end();
  Choice choice;
  choice.planner = best->planner;
  choice.shape = best->call->shape;
  if (best->call == &by_place) choice.order = std::move(where.order);
  choice.model = model_;
  choice.predicted_us = best->us;
  std::tie(choice.simulated, choice.simulated_ranks) = simulated_ranks(*best->planner, *best->call);
  if (next != all.end()) {
    choice.runner_up = next->planner;
    choice.runner_up_us = next->us;
  }
  if (!forced.empty()) {
    choice.reason = best == all.begin()
                        ? "forced by name; it is the fastest by prediction, too"
                        : fmt::format("forced by name, where {} is predicted to be faster",
                                      next->planner->name);
  } else if (next == all.end()) {
    choice.reason = fmt::format("the only algorithm for {}", name(stated.collective));
  } else {
    choice.reason = explain(*best, *next);
  }
  return chosen_.emplace(key, std::move(choice)).first->second;
}

}  // namespace xylem::collectives
