// SPDX-License-Identifier: Apache-2.0
//
// Choosing by prediction. All schedules of a plan are made and run in virtual time, unless they
// have too many steps in all; then the time is extrapolated from the first ranks alone, so that the
// cost of choosing is bounded.
#include "xylem/collectives/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

namespace xylem::collectives {
namespace {

bool all_differ(std::vector<std::uint32_t> numbers) {
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) == numbers.end();
}

constexpr std::uint64_t kExactSteps = 60000;  // A ring of 110 ranks, a tree of 6000.

// What has to be run to know what all ranks do: under a symmetry that takes hosts to hosts the
// ranks of one host, else all.
struct Actors {
  std::optional<Symmetry> symmetry;
  std::uint32_t count;
};

// Parts are whole lines, so they differ much where they are of a few; then their ranks do, too.
bool are_even(const Planner& planner, const Shape& shape, std::uint64_t bytes) {
  constexpr std::uint64_t kManyLines = 8;
  return !has_free_parts(shape.collective) ||
         bytes >= kManyLines * kPartAlignment * planner.plan(shape, 0).blocks;
}

Actors actors_of(const Planner& planner,
                 const Shape& shape,
                 std::uint64_t bytes,
                 const CostModel& model) {
  const bool is_regular = model.host.empty() || shape.per_host > 1 || all_differ(model.host);
  if (planner.symmetry == nullptr || !is_regular || !are_even(planner, shape, bytes)) {
    return {std::nullopt, shape.ranks};
  }
  auto symmetry = planner.symmetry(shape);
  if (shape.per_host == shape.ranks) return {symmetry, symmetry.representatives()};
  if (auto part = symmetry.with_representatives(shape.per_host)) return {part, shape.per_host};
  return {std::nullopt, shape.ranks};
}

double predict_exactly(const Planner& planner,
                       const Shape& shape,
                       std::uint64_t bytes,
                       const CostModel& model) {
  const Actors actors = actors_of(planner, shape, bytes, model);
  std::vector<Schedule> ranks;
  ranks.reserve(actors.count);
  for (std::uint32_t rank = 0; rank < actors.count; ++rank) {
    ranks.push_back(planner.plan(shape, rank));
  }
  const Counts counts{.count = bytes};
  return actors.symmetry ? estimate_us(ranks, *actors.symmetry, counts, model)
                         : estimate_us(ranks, counts, model);
}

// The same communicator with its first ranks only: whole hosts stay whole.
Shape first_ranks(const Shape& shape, std::uint32_t ranks) {
  Shape part = shape;
  if (shape.per_host == shape.ranks) {
    part.per_host = ranks;
  } else {
    ranks = (ranks + shape.per_host - 1) / shape.per_host * shape.per_host;
  }
  part.ranks = ranks;
  part.root = std::min(shape.root, ranks - 1);
  return part;
}

// Steps that have to be run, taking those of ranks beside the root as alike.
std::uint64_t count_steps(const Planner& planner,
                          const Shape& shape,
                          std::uint64_t bytes,
                          const CostModel& model) {
  const std::uint64_t others = planner.plan(shape, (shape.root + 1) % shape.ranks).steps.size();
  const std::uint32_t actors = actors_of(planner, shape, bytes, model).count;
  return planner.plan(shape, shape.root).steps.size() + others * (actors - 1);
}

// Times of n/8, n/4 and n/2 ranks, say, differ by d and r·d; then the next doubling adds r²·d. That
// is exact for times that grow with log n (r = 1) or with n (r = 2), and for those that settle (r <
// 1).
double predict_us(const Planner& planner,
                  const Shape& shape,
                  std::uint64_t bytes,
                  const CostModel& model) {
  const auto divided = [&](int halvings) {
    const std::uint32_t divisor = 1U << halvings;
    return first_ranks(shape, (shape.ranks + divisor - 1) / divisor);
  };
  int halvings = 0;
  while (count_steps(planner, divided(halvings), bytes, model) > kExactSteps) ++halvings;
  double time = predict_exactly(planner, divided(halvings), bytes, model);
  if (halvings == 0) return time;
  const double half = predict_exactly(planner, divided(halvings + 1), bytes, model);
  const double quarter = predict_exactly(planner, divided(halvings + 2), bytes, model);
  const double ratio =
      half > quarter ? std::clamp((time - half) / (half - quarter), 0.0, 4.0) : 0.0;
  double growth = time - half;
  for (int i = 0; i < halvings; ++i) time += growth *= ratio;
  return time;
}

struct Prediction {
  const Planner* planner;
  double us;
};

// All planners of the collective that have their own to say, fastest first; among equals the order
// of registration stays.
std::vector<Prediction> predict_all(const Shape& shape,
                                    std::uint64_t bytes,
                                    const CostModel& model,
                                    std::string_view forced) {
  const bool has_levels = shape.per_host > 1 && shape.per_host < shape.ranks;
  std::vector<Prediction> result;
  for (const Planner& planner : planners()) {
    if (planner.collective != shape.collective) continue;
    // On one level it is what other planners do, too.
    if (planner.takes_hosts && !has_levels && planner.name != forced) continue;
    result.push_back({&planner, predict_us(planner, shape, bytes, model)});
  }
  std::ranges::sort(result, [](const Prediction& a, const Prediction& b) {
    return std::tie(a.us, a.planner) < std::tie(b.us, b.planner);
  });
  return result;
}

std::string explain(const Shape& shape,
                    const Prediction& best,
                    const Prediction& next,
                    std::uint64_t bytes,
                    const CostModel& model) {
  if (shape.ranks == 1) return "one rank has no one to talk to, so all algorithms are alike";
  if (best.us == next.us)
    return fmt::format("as fast as {}, and registered before it", next.planner->name);
  const auto latency = [&](const Prediction& p) {
    return std::min(p.us, predict_us(*p.planner, shape, std::min(bytes, kPartAlignment), model));
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

// A size class has one choice: powers of two are exact, sizes between are treated like the power
// below.
int size_class(std::uint64_t bytes) { return static_cast<int>(std::bit_width(bytes)); }
std::uint64_t bytes_of(int size_class) {
  return size_class == 0 ? 0 : std::uint64_t{1} << (size_class - 1);
}

}  // namespace

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

Result<Choice> Chooser::choose(const Shape& call, std::uint64_t bytes, std::string_view forced) {
  Shape shape = call;
  shape.per_host = ranks_per_host(model_.host, shape.ranks);
  const int size = size_class(bytes);
  const auto key = std::tuple(shape.collective, shape.ranks, shape.root, size, std::string(forced));
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;

  std::vector<Prediction> all = predict_all(shape, bytes_of(size), model_, forced);
  auto best = all.begin();
  if (!forced.empty()) {
    best =
        std::ranges::find_if(all, [&](const Prediction& p) { return p.planner->name == forced; });
    if (best == all.end()) {
      std::vector<std::string_view> names;
      for (const Planner& planner : planners()) {
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
    choice.reason = explain(shape, *best, *next, bytes_of(size), model_);
  }
  return chosen_.emplace(key, std::move(choice)).first->second;
}

}  // namespace xylem::collectives
