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
#include <vector>

namespace xylem::collectives {
namespace {

constexpr std::uint64_t kExactSteps = 60000;  // A ring of 110 ranks, a tree of 6000.

double predict_exactly(const Planner& planner,
                       const Shape& shape,
                       std::uint64_t bytes,
                       const CostModel& model) {
  std::vector<Schedule> ranks;
  ranks.reserve(shape.ranks);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    ranks.push_back(planner.plan(shape, rank));
  }
  return estimate_us(ranks, Counts{.count = bytes}, model);
}

// The same communicator with its first ranks only: whole hosts stay whole.
Shape first_ranks(const Shape& shape, std::uint32_t ranks) {
  return {shape.collective, ranks, std::min(shape.root, ranks - 1)};
}

// Steps of all ranks, taking those beside the root as alike.
std::uint64_t count_steps(const Planner& planner, const Shape& shape) {
  const std::uint64_t others = planner.plan(shape, (shape.root + 1) % shape.ranks).steps.size();
  return planner.plan(shape, shape.root).steps.size() + others * (shape.ranks - 1);
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
  while (count_steps(planner, divided(halvings)) > kExactSteps) ++halvings;
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

// All planners of the collective, fastest first; among equals the order of registration stays.
std::vector<Prediction> predict_all(const Shape& shape,
                                    std::uint64_t bytes,
                                    const CostModel& model) {
  std::vector<Prediction> result;
  for (const Planner& planner : planners()) {
    if (planner.collective != shape.collective) continue;
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

Result<Choice> Chooser::choose(const Shape& shape, std::uint64_t bytes, std::string_view forced) {
  const int size = size_class(bytes);
  const auto key = std::tuple(shape.collective, shape.ranks, shape.root, size, std::string(forced));
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;

  std::vector<Prediction> all = predict_all(shape, bytes_of(size), model_);
  auto best = all.begin();
  if (!forced.empty()) {
    best =
        std::ranges::find_if(all, [&](const Prediction& p) { return p.planner->name == forced; });
    if (best == all.end()) {
      std::vector<std::string_view> names;
      names.reserve(all.size());
      for (const Prediction& p : all) names.push_back(p.planner->name);
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
