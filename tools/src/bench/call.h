// SPDX-License-Identifier: Apache-2.0
//
// Call: one operation with one size, bound to buffers. It can be made repeatedly, and its result
// can be checked.
#pragma once

#include "bench/geometry.h"
#include "bench/options.h"
#include "bench/page_buffer.h"
#include "bench/pattern.h"
#include "bench/place.h"
#include "xylem/base/status.h"
#include "xylem/runtime/communicator.h"
#include "xylem/runtime/work.h"

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
                             const Place& place,
                             Bytes largest);

  /// Sets the size of the next calls. Returns the geometry of a call of this size.
  const Geometry& resize(Bytes size);
  /// Makes one call and waits for its end.
  Status operator()() const;
  /// Makes one call. If the calls run in the order of a stream, the call may not have ended when
  /// this function returns. Otherwise the same as operator().
  Status begin() const;
  /// Waits until all calls have ended. Returns the first error of the calls that begin() has made
  /// since the last finish().
  Status finish() const;
  /// Writes the inputs, and fills the outputs with values that are wrong everywhere. Call before
  /// every checked call.
  Status prepare() const;
  /// The number of wrong elements in this rank's output after one call since prepare().
  Result<std::uint64_t> count_wrong() const;

 private:
  Call(const Communicator& communicator,
       Operation operation,
       const BenchOptions& options,
       const Place& place);

  GeometryQuery query(Bytes size) const;
  ConstBuffer input() const;
  Buffer output() const;
  std::span<const std::byte> expected(const Region& region) const;
  /// Calls fill() for a part of a buffer, which may be in memory of a device.
  Status write(std::byte* target,
               std::size_t from,
               std::size_t count,
               std::span<const std::byte> period,
               bool inverted) const;
  /// Waits for operations or, if the calls run in the order of a stream, stores them for finish().
  template <typename... Works>
  Status settle(const Works&... works) const;

  Status send_recv() const;
  Status exchange() const;
  Status ping_pong() const;

  Place place_;
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
  mutable std::vector<Work> pending_;      ///< Calls in the order of a stream, for finish().
  mutable std::vector<std::byte> mirror_;  ///< Host memory for a part of a buffer on a device.
};

}  // namespace xylem::tools
