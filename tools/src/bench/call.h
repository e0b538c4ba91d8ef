// SPDX-License-Identifier: Apache-2.0
//
// Call: one operation with one size, bound to buffers. It can be made repeatedly, and its result
// can be checked.
#pragma once

#include "bench/geometry.h"
#include "bench/options.h"
#include "bench/page_buffer.h"
#include "bench/pattern.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace xylem::tools {

/// Makes calls of one operation on one communicator. Its buffers are used for all sizes of a sweep.
class Call {
 public:
  /// Allocates buffers for sizes up to `largest` and, if results are checked, computes the right
  /// results.
  static Result<Call> create(const Communicator& communicator,
                             Operation operation,
                             const BenchOptions& options,
                             Bytes largest);

  /// Sets the size of the next calls. Returns the geometry of such a call.
  const Geometry& resize(Bytes size);
  /// Makes one call and waits for its end.
  Status operator()() const;
  /// Writes the inputs, and fills the outputs with values that are wrong everywhere. Call before
  /// every checked call.
  void prepare() const;
  /// The number of wrong elements in this rank's output after one call since prepare().
  std::uint64_t count_wrong() const;

 private:
  Call(Communicator communicator, Operation operation, const BenchOptions& options);

  GeometryQuery query(Bytes size) const;
  ConstBuffer input() const;
  Buffer output() const;
  std::span<const std::byte> expected(const Region& region) const;

  Status send_recv() const;
  Status exchange() const;
  Status ping_pong() const;

  Communicator communicator_;
  Operation operation_;
  DataType type_;
  std::uint32_t root_;
  bool in_place_;
  std::size_t offset_;  ///< Distance of both buffers from the start of their page, in bytes.
  Parts parts_;
  ReduceOp redop_;
  std::vector<std::vector<std::byte>> inputs_;  ///< One period of each rank's input.
  std::vector<std::byte> reduced_;              ///< One period of the reduction.
  PageBuffer first_, second_;
  Geometry geometry_;
};

}  // namespace xylem::tools
