// SPDX-License-Identifier: Apache-2.0
//
// What `xylem bench` is asked to do.
#pragma once

#include "bench/geometry.h"
#include "bench/operation.h"
#include "xylem/base/quantity.h"
#include "xylem/runtime/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::tools {

struct BenchOptions {
  std::vector<Operation> operations;
  bool all = false;  ///< `bench all`: leave out what does not fit instead of refusing it.
  std::optional<std::uint32_t> ranks;  ///< To start; with a launcher, what it must have started.

  Bytes begin{8};
  Bytes end{std::uint64_t{64} << 20};
  std::uint32_t factor = 2;  ///< From one size to the next.

  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  std::uint32_t root = 0;
  bool in_place = false;
  bool allocate = false;  ///< Take buffers from xylem::allocate().
  Bytes offset;           ///< Of every buffer from the page that it begins in.
  Parts parts = Parts::rising;

  std::string algorithm;  ///< Empty: chosen per size.
  std::string transport;  ///< Empty: as configured.

  std::optional<std::uint32_t> warmup;      ///< Calls before the clock; default by size.
  std::optional<std::uint32_t> iterations;  ///< Calls under the clock; default by time.
  bool check = true;
  bool back_to_back = false;

  std::string json;      ///< File to write, or "-" for standard output; empty: none.
  std::string baseline;  ///< Earlier JSON to compare with; empty: none.
};

/// The sizes of a sweep: `begin`, times `factor` each, up to and including `end`.
std::vector<Bytes> sweep(const BenchOptions& options);

}  // namespace xylem::tools
