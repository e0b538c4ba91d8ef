// SPDX-License-Identifier: Apache-2.0
//
// A collective call for tests of the engine: its programs, its input values and its expected
// output.
#pragma once

#include "support/engine_ranks.h"
#include "xylem/collectives/planner.h"
#include "xylem/execution/program.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::execution {

using collectives::Collective;

using Words = std::vector<std::uint32_t>;

inline constexpr std::uint32_t kFactor = 3;

inline void multiply(void* target, const void* source, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<std::uint32_t*>(target)[i] =
        static_cast<const std::uint32_t*>(source)[i] * static_cast<std::uint32_t>(factor);
  }
}

inline std::uint32_t value(std::uint64_t rank, std::uint64_t index) {
  return static_cast<std::uint32_t>(rank * 1'000'003 + index * 7 + 1);
}

/// One call on 32-bit integers that all ranks make. The root is the last rank.
struct EngineCall {
  const collectives::Planner* planner = nullptr;
  std::uint32_t ranks = 1;
  std::uint64_t count = 1;
  bool is_scaled = false;
  std::uint32_t per_host = 1;

  Collective collective() const { return planner->collective; }
  std::uint32_t root() const { return has_root(collective()) ? ranks - 1 : 0; }
  std::uint32_t factor() const { return is_scaled ? kFactor : 1; }
  std::uint64_t elements(std::uint32_t rank, Buffer buffer) const {
    const bool is_input = buffer == Buffer::input;
    switch (collective()) {
      case Collective::all_reduce: return count;
      case Collective::reduce: return is_input || rank == root() ? count : 0;
      case Collective::broadcast: return !is_input || rank == root() ? count : 0;
      case Collective::all_gather: return is_input ? count : ranks * count;
      case Collective::gather: return is_input ? count : rank == root() ? ranks * count : 0;
      case Collective::reduce_scatter: return is_input ? ranks * count : count;
      case Collective::scatter: return !is_input ? count : rank == root() ? ranks * count : 0;
      case Collective::all_to_all: return ranks * count;
      case Collective::barrier: return 0;
    }
    return 0;
  }
  std::uint32_t sum(std::uint64_t index) const {
    std::uint32_t sum = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += value(rank, index) * factor();
    return sum;
  }
  std::uint32_t expected(std::uint32_t rank, std::uint64_t i) const {
    switch (collective()) {
      case Collective::all_reduce:
      case Collective::reduce: return sum(i);
      case Collective::broadcast: return value(root(), i) * factor();
      case Collective::all_gather:
      case Collective::gather: return value(i / count, i % count) * factor();
      case Collective::reduce_scatter: return sum(rank * count + i);
      case Collective::scatter: return value(root(), rank * count + i) * factor();
      case Collective::all_to_all: return value(i / count, rank * count + i % count) * factor();
      case Collective::barrier: break;
    }
    return 0;
  }
  collectives::Schedule plan(std::uint32_t rank) const {
    return planner->plan({collective(), ranks, root(), per_host}, rank);
  }
  /// Compiles `plan`. The call determines counts, kernel and scale; `options` determines the rest.
  std::shared_ptr<const Program> program(const collectives::Schedule& plan,
                                         ProgramOptions options) const {
    options.counts.count = count;
    options.counts.element_bytes = sizeof(std::uint32_t);
    if (reduces(collective())) options.arithmetic.reduce = &add;
    if (is_scaled) options.arithmetic.scale = &multiply;
    auto made = compile(plan, options);
    EXPECT_TRUE(made) << made.status().message();
    return *made;
  }
};

}  // namespace xylem::execution
