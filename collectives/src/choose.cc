// SPDX-License-Identifier: Apache-2.0
//
// Choice by prediction. All schedules of a plan are made, and simulated in virtual time. If the
// schedules have too many steps in total, the time of the call is extrapolated from calls on fewer
// hosts and with fewer ranks per host, so the cost of choosing is bounded.
#include "xylem/collectives/choose.h"

#include "xylem/base/quantity.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
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

// A call, and a cost model with the placement of its ranks.
struct PredictionInput {
  Shape shape;
  std::uint64_t bytes;
  CostModel model;
};

// The schedule of a rank. If `is_staged`, its messages are staged: the messages to and from all
// peers if `stages_local`, otherwise only those to and from peers on other hosts.
Schedule schedule_of(const Planner& planner,
                     const Shape& shape,
                     std::uint32_t rank,
                     bool is_staged,
                     bool stages_local) {
  Schedule schedule = planner.plan(shape, rank);
  if (!is_staged) return schedule;
  Staging staging = staged_messages(shape.ranks);
  if (!stages_local) {
    const std::uint32_t first = rank / shape.per_host * shape.per_host;
    for (std::uint32_t peer = first; peer < first + shape.per_host; ++peer) {
      staging.sends[peer] = staging.receives[peer] = false;
    }
  }
  return stage(schedule, staging);
}

Schedule schedule_of(const Planner& planner, const PredictionInput& call, std::uint32_t rank) {
  const ComputeCost& compute = call.model.compute;
  return schedule_of(planner, call.shape, rank, compute.is_staged(), compute.stages_local);
}

// Whether all hosts have the same number of consecutive ranks.
bool are_alike(const PredictionInput& call) {
  const auto& host = call.model.host;
  return host.empty() || call.shape.per_host > 1 || all_differ(host);
}

bool shares_cores(const PredictionInput& call) {
  return std::ranges::any_of(call.model.host_cores, [&](std::uint32_t cores) {
    return cores > 0 && cores < call.shape.per_host;
  });
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
  if (shape.per_host == shape.ranks && !shares_cores(call)) {
    return {symmetry, symmetry.representatives()};
  }
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

// What halved() halves: the number of hosts, or the number of ranks per host.
enum class Along { hosts, per_host };

std::uint32_t hosts_of(const Shape& shape) { return shape.ranks / shape.per_host; }

// Removes every other rank of each host. `host` is the host of each rank, and so is the result.
std::vector<std::uint32_t> thinned(std::span<const std::uint32_t> host) {
  std::map<std::uint32_t, std::uint32_t> seen;
  std::vector<std::uint32_t> kept;
  for (const std::uint32_t of_rank : host) {
    if (seen[of_rank]++ % 2 == 0) kept.push_back(of_rank);
  }
  return kept;
}

// The same call on half of the hosts, or with half of the ranks on each host. If the hosts are not
// alike (per_host is 1), halving along hosts removes every other rank of each host.
PredictionInput halved(const PredictionInput& call, Along along) {
  PredictionInput half = call;
  Shape& shape = half.shape;
  if (along == Along::hosts && !are_alike(call)) {
    half.model.host = thinned(half.model.host);
    shape.ranks = static_cast<std::uint32_t>(half.model.host.size());
  } else if (along == Along::hosts) {
    shape.ranks = (hosts_of(shape) + 1) / 2 * shape.per_host;
  } else {
    const std::uint32_t hosts = hosts_of(shape);
    shape.per_host = (shape.per_host + 1) / 2;
    shape.ranks = hosts * shape.per_host;
    for (std::uint32_t rank = 0; rank < half.model.host.size(); ++rank) {
      half.model.host[rank] = rank / shape.per_host;
    }
    for (std::uint32_t& cores : half.model.host_cores) cores = (cores + 1) / 2;
  }
  half.model.host.resize(std::min<std::size_t>(half.model.host.size(), shape.ranks));
  shape.root = std::min(shape.root, shape.ranks - 1);
  return half;
}

// Whether the call may be halved. At least eight hosts remain, since extrapolate() halves the
// result twice more: even two hosts still communicate over the network.
bool can_halve(const PredictionInput& call, Along along) {
  constexpr std::uint32_t kFewestHosts = 8;
  return along == Along::hosts ? hosts_of(call.shape) >= 2 * kFewestHosts : call.shape.per_host > 1;
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
  int halvings = 0;
  PredictionInput part = call;
  const std::uint64_t most = shares_cores(call) ? kExactSharedSteps : kExactSteps;
  while (can_halve(part, along) && count_steps(planner, part) > most) {
    part = halved(part, along);
    ++halvings;
  }
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
    return extrapolate(planner, fewer_hosts, Along::per_host,
                       [&](const PredictionInput& smaller_hosts) {
                         return predict_exactly(planner, smaller_hosts);
                       });
  });
}

// The most bytes of scratch_beyond_rings() that an algorithm should use at a rank. The scratch is
// computed for the smallest size of a size class; the largest sizes need up to twice as much.
constexpr std::uint64_t kMostScratch = 16 << 20;
// An algorithm that needs more than kMostScratch is chosen only if every algorithm that needs less
// takes more than kPriceOfMemory times as long.
constexpr double kPriceOfMemory = 1.25;

// The largest scratch among up to eight ranks: the first four ranks, and the four ranks from the
// root on. Other ranks are not examined, to save time. The first ranks are examined because some
// planners begin by merging the data of pairs of the first ranks (fold.h).
std::uint64_t scratch_of(const Planner& planner, const PredictionInput& call) {
  constexpr std::uint32_t kLooks = 4;
  const Shape& shape = call.shape;
  std::uint64_t most = 0;
  const auto look_at = [&](std::uint32_t rank) {
    const Counts counts{.count = call.bytes};
    most = std::max(most, scratch_beyond_rings(planner.plan(shape, rank), counts));
  };
  for (std::uint32_t i = 0; i < std::min(kLooks, shape.ranks); ++i) {
    look_at(i);
    if (shape.root != 0) look_at((shape.root + i) % shape.ranks);
  }
  return most;
}

struct Prediction {
  const Planner* planner;
  double us;
  std::uint64_t scratch;  // 0 if it is at most kMostScratch.
};

// The predictions for all planners of the collective, except planners that would make the same plan
// as another planner. The fastest planner comes first; equal times keep the order of registration.
// But if the fastest planner needs more than kMostScratch, the fastest planner that needs less
// comes first, provided that it takes at most kPriceOfMemory times as long.
std::vector<Prediction> predict_all(std::span<const Planner> candidates,
                                    const PredictionInput& call,
                                    std::string_view forced) {
  const Shape& shape = call.shape;
  const bool has_levels = shape.per_host > 1 && shape.per_host < shape.ranks;
  std::vector<Prediction> result;
  for (const Planner& planner : candidates) {
    if (planner.collective != shape.collective) continue;
    // If there is one host or one rank per host, this planner makes the same plan as another
    // planner.
    if (planner.takes_hosts && !has_levels && planner.name != forced) continue;
    const std::uint64_t scratch = scratch_of(planner, call);
    result.push_back({&planner, predict_us(planner, call), scratch > kMostScratch ? scratch : 0});
  }
  std::ranges::sort(result, [](const Prediction& a, const Prediction& b) {
    return std::tie(a.us, a.planner) < std::tie(b.us, b.planner);
  });
  const auto modest = std::ranges::find(result, 0U, &Prediction::scratch);
  if (modest != result.end() && modest->us <= kPriceOfMemory * result.front().us)
    std::rotate(result.begin(), modest, modest + 1);
  return result;
}

std::string explain(const PredictionInput& call, const Prediction& best, const Prediction& next) {
  if (call.shape.ranks == 1) return "one rank has no one to talk to, so all algorithms are alike";
  if (next.us < best.us && next.scratch > best.scratch) {
    return fmt::format(
        "needs little memory: {} is predicted to take {:.4g} us, but needs {} of scratch",
        next.planner->name, next.us, format_bytes(Bytes{next.scratch}));
  }
  if (best.us == next.us)
    return fmt::format("as fast as {}, and registered before it", next.planner->name);
  PredictionInput little = call;
  little.bytes = std::min(call.bytes, kPartAlignment);
  const auto latency = [&](const Prediction& p) {
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

Schedule Choice::schedule(std::uint32_t rank) const {
  return schedule_of(*planner, shape, rank, is_staged, stages_local);
}

std::uint32_t ranks_per_host(std::span<const std::uint32_t> host, std::uint32_t ranks) {
  if (host.empty()) return ranks;
  const auto end = std::ranges::find_if(host, [&](std::uint32_t one) { return one != host[0]; });
  const auto per_host = static_cast<std::uint32_t>(end - host.begin());
  if (ranks % per_host != 0) return 1;
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (rank % per_host == 0) hosts.push_back(host[rank]);
    if (host[rank] != hosts.back()) return 1;
  }
  return all_differ(std::move(hosts)) ? per_host : 1;
}

Result<Choice> Chooser::choose(const Shape& stated, std::uint64_t bytes, std::string_view forced) {
  Shape shape = stated;
  shape.per_host = ranks_per_host(model_.host, shape.ranks);
  const int size = size_class(bytes);
  const auto key = std::tuple(shape.collective, shape.ranks, shape.root, size, std::string(forced));
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;

  const PredictionInput call{shape, bytes_of(size), model_};
  std::vector<Prediction> all = predict_all(candidates_, call, forced);
  auto best = all.begin();
  if (!forced.empty()) {
    best =
        std::ranges::find_if(all, [&](const Prediction& p) { return p.planner->name == forced; });
    if (best == all.end()) {
      std::vector<std::string_view> names;
      for (const Planner& planner : candidates_) {
        if (planner.collective == shape.collective) names.push_back(planner.name);
      }
      return failure(Code::invalid_argument,
                     fmt::format("no algorithm '{}' for {}: use one of {}", forced.substr(0, 40),
                                 name(shape.collective), fmt::join(names, ", ")));
    }
  }
  const auto next = best != all.begin() ? all.begin()
                    : all.size() > 1    ? all.begin() + 1
                                        : all.end();
  Choice choice;
  choice.planner = best->planner;
  choice.shape = shape;
  choice.predicted_us = best->us;
  choice.is_staged = model_.compute.is_staged();
  choice.stages_local = model_.compute.stages_local;
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
    choice.reason = fmt::format("the only algorithm for {}", name(shape.collective));
  } else {
    choice.reason = explain(call, *best, *next);
  }
  return chosen_.emplace(key, std::move(choice)).first->second;
}

}  // namespace xylem::collectives
