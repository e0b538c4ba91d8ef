// SPDX-License-Identifier: Apache-2.0
//
// measure: measures one row. The call is checked, then warmed up and timed, and then checked again.
//
// A sample is the time of one call on the slowest rank. Before each call there is a barrier, which
// is not timed. With --back-to-back, the only sample is the slowest rank's mean time of many
// consecutive calls. If a call consists of several messages one after another, the row shows the
// time of one message. The number of calls depends on their time; rank 0 chooses this number for
// all ranks.
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
  /// Wrong elements in all checks on all ranks; for a barrier, ranks that left too early.
  std::uint64_t wrong = 0;
};

/// Memory that a rank copies to measure the bandwidth of the machine's memory.
class Copies {
 public:
  static constexpr Bytes kBytes{std::uint64_t{64} << 20};  ///< More than caches hold.

  static Result<Copies> create();

  /// Copies the memory with non-temporal stores.
  void copy() const;

 private:
  PageBuffer from_, to_;
};

/// The ranks that measure together.
struct Ranks {
  Communicator control;  ///< For communication apart from the measured call.
  bool one_host = true;  ///< All ranks are on one host, so they share a clock.
};

/// Precondition: call.resize() has set the size. Collective; iterations and wrong elements are
/// equal on all ranks.
Result<Measurement> measure(const Call& call,
                            Operation operation,
                            Bytes size,
                            const BenchOptions& options,
                            const Ranks& ranks);

/// The bandwidth at which all ranks of one host together copy memory. Collective.
Result<GBps> measure_copies(const Copies& copies, const Communicator& control);

}  // namespace xylem::tools
