// SPDX-License-Identifier: Apache-2.0
//
// The operations that `xylem bench` measures, the meaning of a row's size for each, and how a time
// becomes a bandwidth. Sizes and factors are those of nccl-tests (doc/PERFORMANCE.md), so that
// tables can be compared.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::tools {

enum class Operation : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  all_gather_v,
  reduce_scatter,
  reduce_scatter_v,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  barrier,
  send_recv,
  exchange,
  ping_pong,
};

/// The meaning of a row's size. It determines which share of the size crosses the network.
enum class Sizing : std::uint8_t {
  none,          ///< No data.
  whole,         ///< One rank's buffer: every rank's input or output has this size.
  parts,         ///< The larger of input and output: n parts, one for each rank.
  uneven_parts,  ///< Like `parts`, but with parts of different sizes.
};

struct OperationTraits {
  Operation operation = Operation::all_reduce;
  std::string_view name;
  /// The name for Communicator::plan_info() and XYLEM_ALGORITHM; empty if no algorithm is chosen.
  std::string_view collective;
  std::string_view size;  ///< The meaning of a row's size, for the head of the table.
  Sizing sizing = Sizing::whole;
  bool reduces = false;
  bool rooted = false;
  bool in_place = false;  ///< Whether an in-place form exists.
  std::uint32_t least_ranks = 1;
  /// The number of messages of one call that follow one after another. A row shows the time of one
  /// message.
  std::uint32_t messages = 1;
};

/// The table of all operations, in the order of the enumeration.
std::span<const OperationTraits> operations() noexcept;
const OperationTraits& traits(Operation operation) noexcept;
/// The operation with this name. Fails with invalid_argument, and suggests the nearest name.
Result<Operation> parse_operation(std::string_view text);

}  // namespace xylem::tools
