// SPDX-License-Identifier: Apache-2.0
//
// choose: selects the cheapest plan for a call and states why. The choice depends only on facts on
// which all ranks agree, so all ranks choose the same plan.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"
#include "xylem/collectives/planner.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace xylem::collectives {

/// Which ranks have been simulated to predict the time of a plan.
enum class Simulated : std::uint8_t {
  all_ranks,
  representatives,  ///< Those that represent all others by a symmetry of the plan.
  fewer_ranks,      ///< Those of smaller calls, from which the time is extrapolated.
};

struct Choice {
  const Planner* planner = nullptr;
  /// The shape of the plan: that of the call with per_host and host_sizes. If `order` is not empty,
  /// its root is a place.
  Shape shape;
  /// The rank at each place (rename.h); empty: the plan is not renamed.
  std::vector<std::uint32_t> order;
  std::shared_ptr<const CostModel> model;  ///< The model of the ranks.
  double predicted_us = 0;
  Simulated simulated = Simulated::all_ranks;
  std::uint32_t simulated_ranks = 0;   ///< In the largest call that was simulated.
  const Planner* runner_up = nullptr;  ///< The next best planner, or null.
  double runner_up_us = 0;
  /// The reason for the choice, such as "fewer latencies in a row: 3 us of them against 9 us with
  /// ring".
  std::string reason;

  /// The predicted time of this plan for another size; predicted_us is for the smallest size of the
  /// size class.
  double predict_us(std::uint64_t bytes) const;
  /// The schedule of a rank. Precondition: `planner` is not null.
  Schedule plan(std::uint32_t rank) const;
  /// Like plan(), but staged if the model requires this (ComputeCost::host_GBps).
  Schedule schedule(std::uint32_t rank) const;
};

/// Chooses plans for one communicator, and caches choices by shape, size class and forced name. A
/// size class contains the sizes from one power of two up to the next. All sizes of a class get the
/// choice for the smallest size of the class. Not thread-safe.
class Chooser {
 public:
  /// Chooses among `candidates`, which must outlive the Chooser.
  explicit Chooser(CostModel model, std::span<const Planner> candidates = planners())
      : model_(std::make_shared<CostModel>(std::move(model))), candidates_(candidates) {}

  /// `bytes` is Counts::count times the element size. For uneven calls, it is a size on which all
  /// ranks agree, such as the mean over the ranks. `forced` is the name of a planner, or empty.
  /// Shape::per_host and Shape::host_sizes are computed from the model's hosts; the caller's values
  /// are ignored. Fails with invalid_argument, naming the existing planners, if `forced` is not a
  /// planner of this collective.
  Result<Choice> choose(const Shape& shape, std::uint64_t bytes, std::string_view forced = {});

  const CostModel& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<const CostModel> model_;
  std::span<const Planner> candidates_;
  using Key = std::tuple<Collective, std::uint32_t, std::uint32_t, int, std::string>;
  std::map<Key, Choice> chosen_;
};

}  // namespace xylem::collectives
