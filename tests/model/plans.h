// SPDX-License-Identifier: Apache-2.0
//
// The schedules of all ranks of one plan, and the shapes for which planners are tested.
#pragma once

#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
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

/// The shapes with this number of ranks and this root. If the planner depends on the hosts: all
/// possible equal hosts and, from three ranks on, two lists of unequal hosts.
inline std::vector<Shape> shapes(const Planner& planner, std::uint32_t ranks, std::uint32_t root) {
  std::vector<Shape> result = {{planner.collective, ranks, root}};
  if (!planner.takes_hosts) return result;
  for (std::uint32_t per_host = 2; per_host <= ranks; ++per_host) {
    if (ranks % per_host == 0) result.push_back({planner.collective, ranks, root, per_host});
  }
  if (ranks < 3) return result;
  result.push_back({planner.collective, ranks, root, 1, {1, ranks - 1}});
  std::vector<std::uint32_t> sizes;
  std::mt19937 random(ranks);
  for (std::uint32_t left = ranks; left > 0; left -= sizes.back()) {
    sizes.push_back(1 + random() % std::min(left, 5U));
  }
  result.push_back({planner.collective, ranks, root, 1, sizes});
  return result;
}

/// One of shapes(), with any root.
inline Shape draw_shape(const Planner& planner, std::uint32_t ranks, std::mt19937_64& random) {
  const auto root = static_cast<std::uint32_t>(random() % ranks);
  const auto all = shapes(planner, ranks, has_root(planner.collective) ? root : 0);
  return all[random() % all.size()];
}

inline std::string title(const Planner& planner, const Shape& shape) {
  std::string hosts = std::to_string(shape.per_host) + " per host";
  for (const std::uint32_t size : shape.host_sizes) hosts += " " + std::to_string(size);
  return std::string(name(planner.collective)) + " " + std::string(planner.name) + ", " +
         std::to_string(shape.ranks) + " ranks, root " + std::to_string(shape.root) + ", " + hosts;
}

/// The name of a test case for a planner.
inline std::string label(const testing::TestParamInfo<Planner>& tested) {
  return std::string(name(tested.param.collective)) + "_" + std::string(tested.param.name);
}

}  // namespace xylem::collectives::model
