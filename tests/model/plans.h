// SPDX-License-Identifier: Apache-2.0
//
// The schedules of all ranks of one plan, and the shapes for which planners are tested.
#pragma once

#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace xylem::collectives::model {

inline std::vector<Schedule> plan_all(const Planner& planner, const Shape& shape) {
  std::vector<Schedule> ranks;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    ranks.push_back(planner.plan(shape, rank));
  return ranks;
}

/// Numbers of ranks from 1 to `most`. With a sanitizer, all numbers up to 9, and then every
/// eleventh.
inline std::vector<std::uint32_t> ranks_to_prove(std::uint32_t most) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t ranks = 1; ranks <= most; ranks += test::kHasSanitizer && ranks >= 9 ? 11 : 1)
    result.push_back(ranks);
  return result;
}

/// All roots for up to 8 ranks; the first, second, middle and last rank for more ranks; only 0 if
/// the collective has no root.
inline std::set<std::uint32_t> roots(Collective collective, std::uint32_t ranks) {
  if (!has_root(collective)) return {0};
  std::set<std::uint32_t> result = {0, 1 % ranks, ranks / 2, ranks - 1};
  for (std::uint32_t root = 0; root < ranks && ranks <= 8; ++root) result.insert(root);
  return result;
}

/// All possible numbers of ranks per host if the planner depends on this number; otherwise only 1.
inline std::vector<std::uint32_t> ranks_per_host(const Planner& planner, std::uint32_t ranks) {
  std::vector<std::uint32_t> result = {1};
  for (std::uint32_t per_host = 2; per_host <= ranks && planner.takes_hosts; ++per_host) {
    if (ranks % per_host == 0) result.push_back(per_host);
  }
  return result;
}

inline std::string title(const Planner& planner, const Shape& shape) {
  return std::string(name(planner.collective)) + " " + std::string(planner.name) + ", " +
         std::to_string(shape.ranks) + " ranks, root " + std::to_string(shape.root) + ", " +
         std::to_string(shape.per_host) + " per host";
}

/// The name of a test case for a planner.
inline std::string label(const testing::TestParamInfo<Planner>& tested) {
  return std::string(name(tested.param.collective)) + "_" + std::string(tested.param.name);
}

}  // namespace xylem::collectives::model
