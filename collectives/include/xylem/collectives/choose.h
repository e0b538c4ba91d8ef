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
#include <span>
#include <string>
#include <string_view>
#include <tuple>

namespace xylem::collectives {

struct Choice {
  const Planner* planner = nullptr;
  Shape shape;  ///< The shape of the call, with per_host set.
  double predicted_us = 0;
  const Planner* runner_up = nullptr;  ///< The next best planner, or null.
  double runner_up_us = 0;
  /// The reason for the choice, such as "fewer latencies in a row: 3 us of them against 9 us with
  /// ring".
  std::string reason;
  /// `is_staged`: the model requires staged schedules (ComputeCost::host_GBps). `stages_local`: if
  /// schedules are staged, messages within a host are staged, too.
  bool is_staged = false, stages_local = false;

  /// The schedule of a rank, staged if `is_staged`. Precondition: `planner` is not null.
  Schedule schedule(std::uint32_t rank) const;
};

/// Computes Shape::per_host for `ranks` ranks, of which rank r is on host number host[r]. If `host`
/// is empty, all ranks are on one host.
std::uint32_t ranks_per_host(std::span<const std::uint32_t> host, std::uint32_t ranks);

/// Chooses plans for one communicator, and caches choices by shape, size class and forced name. A
/// size class contains the sizes from one power of two up to the next. All sizes of a class get the
/// choice for the smallest size of the class. Not thread-safe.
class Chooser {
 public:
  /// Chooses among `candidates`, which must outlive the Chooser.
  explicit Chooser(CostModel model, std::span<const Planner> candidates = planners())
      : model_(std::move(model)), candidates_(candidates) {}

  /// `bytes` is Counts::count times the element size. For uneven calls, it is a size on which all
  /// ranks agree, such as the mean over the ranks. `forced` is the name of a planner, or empty.
  /// Shape::per_host is computed from the model's hosts; the caller's value is ignored. Fails with
  /// invalid_argument, naming the existing planners, if `forced` is not a planner of this
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
