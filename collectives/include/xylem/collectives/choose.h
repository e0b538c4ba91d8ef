// SPDX-License-Identifier: Apache-2.0
//
// choose: the cheapest plan for a call, and why. It depends only on what all ranks agree on, so all
// ranks choose alike.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"
#include "xylem/collectives/planner.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

namespace xylem::collectives {

struct Choice {
  const Planner* planner = nullptr;
  Shape shape;  ///< What to plan: the call's, and where its ranks stand.
  double predicted_us = 0;
  const Planner* runner_up = nullptr;  ///< Null where there is no other.
  double runner_up_us = 0;
  /// One sentence: what decided ("fewer latencies in a row: 3 us of them against 9 us with ring").
  std::string reason;
};

/// Shape::per_host for `ranks` ranks on these hosts (CostModel::host).
std::uint32_t ranks_per_host(std::span<const std::uint32_t> host, std::uint32_t ranks);

/// Chooses for one communicator; remembers by shape, size class and forced name. A class is the
/// sizes from one power of two to below the next, and is predicted at its smallest. Not
/// thread-safe.
class Chooser {
 public:
  /// Among `candidates`, which outlive it.
  explicit Chooser(CostModel model, std::span<const Planner> candidates = planners())
      : model_(std::move(model)), candidates_(candidates) {}

  /// Shape::per_host is found by the model's hosts, whatever the caller says. `bytes`:
  /// Counts::count · element size (uneven calls: the mean). `forced`: a planner's name, or empty.
  /// Fails with invalid_argument, naming those that exist, if `forced` is not a planner of this
  /// collective.
  Result<Choice> choose(const Shape& shape, std::uint64_t bytes, std::string_view forced = {});

  const CostModel& model() const noexcept { return model_; }

 private:
  CostModel model_;
  std::span<const Planner> candidates_;
  using Key = std::tuple<Collective, std::uint32_t, std::uint32_t, int, std::string>;
  std::map<Key, Choice> chosen_;
};

}  // namespace xylem::collectives
