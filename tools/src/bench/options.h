// SPDX-License-Identifier: Apache-2.0
//
// The options of `xylem bench`.
#pragma once

#include "bench/geometry.h"
#include "bench/operation.h"
#include "xylem/base/quantity.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::tools {

/// Where buffers are: "host", "cuda" or "cuda:2".
struct DeviceOption {
  bool is_cuda = false;
  /// The number of the device in this process. Empty: each rank uses the device whose number is the
  /// rank's number on its host, modulo the number of devices.
  std::optional<std::uint32_t> number;
};
Result<DeviceOption> parse_device(std::string_view text);

struct BenchOptions {
  std::vector<Operation> operations;
  bool all = false;  ///< `bench all`: leave out operations that cannot be measured.
  /// Number of ranks to start; under a launcher, the number of ranks that the launcher must have
  /// started.
  std::optional<std::uint32_t> ranks;

  Bytes begin{8};
  Bytes end{std::uint64_t{64} << 20};
  std::uint32_t factor = 2;  ///< Each size is this many times the previous one.

  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  std::uint32_t root = 0;
  bool in_place = false;
  bool allocate = false;  ///< Use buffers from xylem::allocate().
  DeviceOption device;
  bool stream = false;  ///< Calls run in the order of a stream.
  Bytes offset;         ///< Distance of every buffer from the start of its page.
  Parts parts = Parts::rising;

  std::string algorithm;  ///< Empty: chosen for each size.
  std::string transport;  ///< Empty: as configured.
  std::string require;    ///< Options::require; empty: as configured.

  /// Calls that are not timed; the default depends on the size.
  std::optional<std::uint32_t> warmup;
  std::optional<std::uint32_t> iterations;  ///< Timed calls; the default depends on their time.
  bool check = true;
  bool back_to_back = false;

  std::string json;      ///< File to write, or "-" for standard output; empty: none.
  std::string csv;       ///< As `json`.
  std::string baseline;  ///< Earlier JSON to compare with; empty: none.
};

/// The sizes of a sweep: `begin`, multiplied by `factor` each time, up to and including `end`.
std::vector<Bytes> sweep(const BenchOptions& options);

}  // namespace xylem::tools
