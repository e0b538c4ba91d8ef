// SPDX-License-Identifier: Apache-2.0
//
// Place: where a rank's buffers are, in memory of the host or of a CUDA device, and the stream of
// its calls.
#pragma once

#include "bench/options.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace xylem::execution {
class CudaStream;
}  // namespace xylem::execution

namespace xylem::tools {

/// Copies of a Place share its stream. Not thread-safe.
class Place {
 public:
  /// Memory of the host.
  Place() = default;
  /// The place that the options select for a rank with this number on its host. Fails with
  /// `unsupported` if the device cannot be used; the message gives the reason.
  static Result<Place> choose(const BenchOptions& options, std::uint32_t local_rank);

  const Memory& memory() const noexcept { return memory_; }
  bool is_on_device() const noexcept { return memory_.kind != MemoryKind::host; }
  /// True if the calls run in the order of a stream.
  bool orders_calls() const noexcept { return orders_calls_; }

  /// The handle for the measured calls: one in the order of the stream if orders_calls(), otherwise
  /// `communicator` itself.
  Communicator handle(const Communicator& communicator) const;
  /// Copies between memory of the host and memory of this place. Waits until the copy has ended.
  Status copy(void* target, const void* source, std::size_t bytes) const;
  /// Waits until the stream has completed all calls so far.
  Status wait_for_stream() const;

 private:
  Memory memory_{};
  bool orders_calls_ = false;
  std::shared_ptr<execution::CudaStream> stream_;  ///< Null on the host.
};

}  // namespace xylem::tools
