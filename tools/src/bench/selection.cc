// SPDX-License-Identifier: Apache-2.0
//
// Rules about which options fit together.
#include "bench/selection.h"

#include "xylem/base/suggest.h"
#include "xylem/collectives/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>

namespace xylem::tools {
namespace {

/// Whether `algorithm` is a plain name, for any operation, unlike "all_reduce=ring,…".
bool names_one_algorithm(const BenchOptions& options) {
  return !options.algorithm.empty() && options.algorithm.find('=') == std::string::npos;
}

bool has_algorithm(const OperationTraits& operation, std::string_view algorithm) {
  const auto collective = collectives::parse_collective(operation.collective);
  return collective && collectives::find_planner(*collective, algorithm) != nullptr;
}

std::vector<std::string_view> algorithms_of(const OperationTraits& operation) {
  std::vector<std::string_view> names;
  for (const collectives::Planner& planner : collectives::planners()) {
    if (name(planner.collective) == operation.collective) names.push_back(planner.name);
  }
  return names;
}

/// Why the operation cannot be measured with these options; empty if it can.
std::string obstacle(const OperationTraits& operation,
                     const BenchOptions& options,
                     std::uint32_t ranks) {
  if (ranks < operation.least_ranks) {
    return fmt::format("needs at least {} ranks, there is {}", operation.least_ranks, ranks);
  }
  const bool is_both_ways =
      operation.operation == Operation::send_recv || operation.operation == Operation::exchange;
  if (options.stream && is_both_ways) {
    return "sends and receives at the same time, which a stream cannot; leave --stream out";
  }
  if (options.in_place && !operation.in_place) return "has no in-place form";
  if (options.offset.value % size_of(options.type) != 0) {
    return fmt::format("--offset {}: no multiple of {}'s {} bytes", options.offset.value,
                       name(options.type), size_of(options.type));
  }
  if (operation.reduces) {
    if (const Status status = check_reduction(options.redop, options.type); !status) {
      return std::string(status.message());
    }
  }
  if (names_one_algorithm(options) && !has_algorithm(operation, options.algorithm)) {
    const auto known = algorithms_of(operation);
    if (known.empty()) return "has no algorithms to choose from";
    const auto nearest = nearest_name(options.algorithm, known);
    return fmt::format("has no algorithm \"{}\"; one of {}{}", options.algorithm,
                       fmt::join(known, ", "),
                       nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest));
  }
  return {};
}

}  // namespace

Result<Selection> select_operations(const BenchOptions& options, std::uint32_t ranks) {
  if (options.root >= ranks) {
    return failure(Code::invalid_argument,
                   fmt::format("--root {}: there are {} ranks, so the last one is {}", options.root,
                               ranks, ranks - 1));
  }
  if (options.stream && !options.device.is_cuda) {
    return failure(Code::invalid_argument,
                   "--stream: memory of the host has no streams; add --device cuda");
  }
  if (options.allocate && options.device.is_cuda) {
    return failure(Code::invalid_argument,
                   "--allocate: takes memory of the host; leave it out with --device cuda");
  }
  Selection selection;
  for (const Operation operation : options.operations) {
    const OperationTraits& row = traits(operation);
    const std::string why_not = obstacle(row, options, ranks);
    if (why_not.empty()) {
      selection.operations.push_back(operation);
    } else if (options.all) {
      selection.left_out.push_back(fmt::format("{}: {}", row.name, why_not));
    } else {
      return failure(Code::invalid_argument, fmt::format("{}: {}", row.name, why_not));
    }
  }
  if (selection.operations.empty()) {
    return failure(Code::invalid_argument, fmt::format("no operation fits what was asked: {}",
                                                       fmt::join(selection.left_out, "; ")));
  }
  return selection;
}

std::string forced_algorithms(const BenchOptions& options) {
  if (!names_one_algorithm(options)) return options.algorithm;
  std::set<std::string> forced;  // two operations may share one collective
  for (const Operation operation : options.operations) {
    const OperationTraits& row = traits(operation);
    if (has_algorithm(row, options.algorithm)) {
      forced.insert(fmt::format("{}={}", row.collective, options.algorithm));
    }
  }
  return fmt::format("{}", fmt::join(forced, ","));
}

}  // namespace xylem::tools
