// SPDX-License-Identifier: Apache-2.0
//
// measure: one row. The call is checked first, then warmed up and timed, then checked again.
//
// A sample is the slowest rank's time of one call, a barrier before each outside of the clock; or,
// back to back, the slowest rank's mean time of many calls in a row. How many calls are made adapts
// to their time, and rank 0 decides for all.
#pragma once

#include "bench/call.h"
#include "bench/options.h"
#include "bench/page_buffer.h"
#include "bench/statistics.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstdint>

namespace xylem::tools {

struct Measurement {
  Statistics microseconds;
  std::uint64_t iterations = 0;
  std::uint64_t wrong =
      0;  ///< Elements, in all checks on all ranks; for a barrier: ranks that left too early.
};

/// What a rank copies to learn what the memory gives.
class Copies {
 public:
  static constexpr Bytes kBytes{std::uint64_t{64} << 20};  ///< More than caches keep.

  static Result<Copies> create();

  /// Copies them past the cache.
  void copy() const;

 private:
  PageBuffer from_, to_;
};

/// Those that measure together.
struct Ranks {
  Communicator control;  ///< For what they tell each other besides the call.
  bool one_host = true;  ///< They share a clock.
};

/// `call` is bound to its size. Collective; iterations and wrong elements are alike on all ranks.
Result<Measurement> measure(const Call& call,
                            Operation operation,
                            Bytes size,
                            const BenchOptions& options,
                            const Ranks& ranks);

/// What all ranks, on one host, copy in a second when all copy at once. Collective.
Result<GBps> measure_copies(const Copies& copies, const Communicator& control);

}  // namespace xylem::tools
