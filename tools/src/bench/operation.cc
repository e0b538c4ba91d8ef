// SPDX-License-Identifier: Apache-2.0
//
// The table of measured operations.
#include "bench/operation.h"

#include "xylem/base/suggest.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

namespace xylem::tools {
namespace {

constexpr std::string_view kBuffer = "the buffer of one rank";
constexpr std::string_view kOutput = "the whole output of one rank";
constexpr std::string_view kInput = "the whole input of one rank";
constexpr std::string_view kMessage =
    "what each rank sends to the next and gets from the one before";

constexpr std::array kOperations = {
    OperationTraits{Operation::all_reduce, "all_reduce", "all_reduce", kBuffer, Sizing::whole, true,
                    false, true},
    OperationTraits{Operation::reduce, "reduce", "reduce", kBuffer, Sizing::whole, true, true,
                    true},
    OperationTraits{Operation::broadcast, "broadcast", "broadcast", kBuffer, Sizing::whole, false,
                    true, true},
    OperationTraits{Operation::all_gather, "all_gather", "all_gather", kOutput, Sizing::parts,
                    false, false, true},
    OperationTraits{Operation::all_gather_v, "all_gather_v", "all_gather", kOutput,
                    Sizing::uneven_parts},
    OperationTraits{Operation::reduce_scatter, "reduce_scatter", "reduce_scatter", kInput,
                    Sizing::parts, true, false, true},
    OperationTraits{Operation::reduce_scatter_v, "reduce_scatter_v", "reduce_scatter", kInput,
                    Sizing::uneven_parts, true},
    OperationTraits{Operation::all_to_all, "all_to_all", "all_to_all", kInput, Sizing::parts, false,
                    false, true},
    OperationTraits{Operation::all_to_all_v, "all_to_all_v", "all_to_all", kInput,
                    Sizing::uneven_parts},
    OperationTraits{Operation::gather, "gather", "gather", "the whole output of the root",
                    Sizing::parts, false, true, true},
    OperationTraits{Operation::scatter, "scatter", "scatter", "the whole input of the root",
                    Sizing::parts, false, true, true},
    OperationTraits{Operation::barrier, "barrier", "barrier", "nothing", Sizing::none},
    OperationTraits{Operation::send_recv, "send_recv", "", kMessage, Sizing::whole, false, false,
                    false, 2},
    OperationTraits{Operation::exchange, "exchange", "", kMessage, Sizing::whole, false, false,
                    false, 2},
    OperationTraits{Operation::ping_pong, "ping_pong", "",
                    "the message from rank 0 to 1 and back, time: half of both ways", Sizing::whole,
                    false, false, false, 2, 2},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (static_cast<std::size_t>(kOperations[i].operation) != i) return false;
  }
  return true;
}
static_assert(in_order(), "traits() looks an operation up by its number");

}  // namespace

std::span<const OperationTraits> operations() noexcept { return kOperations; }

const OperationTraits& traits(Operation operation) noexcept {
  return kOperations[static_cast<std::size_t>(operation)];
}

Result<Operation> parse_operation(std::string_view text) {
  std::vector<std::string_view> names{"all"};
  for (const OperationTraits& row : kOperations) {
    if (row.name == text) return row.operation;
    names.push_back(row.name);
  }
  const auto nearest = nearest_name(text, names);
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" is no operation; one of {}{}", text, fmt::join(names, ", "),
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest)));
}

}  // namespace xylem::tools
