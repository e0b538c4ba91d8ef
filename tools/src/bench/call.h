// SPDX-License-Identifier: Apache-2.0
//
// Call: one operation of one size, bound to buffers, ready to be made again and again and to be
// checked.
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

/// Makes calls of one operation on one communicator. Its buffers serve all sizes of a sweep.
class Call {
 public:
  /// Buffers for sizes up to `largest`; the right results, where results are to be checked.
  static Result<Call> create(const Communicator& communicator,
                             Operation operation,
                             const BenchOptions& options,
                             Bytes largest);

  /// Binds the next calls to a size and returns it.
  const Geometry& resize(Bytes size);
  /// One call, from start to end.
  Status operator()() const;
  /// Writes the inputs, and into the outputs what is wrong everywhere. Before every checked call.
  void prepare() const;
  /// Elements of this rank's output that are wrong after one call since prepare().
  std::uint64_t count_wrong() const;

 private:
  Call(Communicator communicator, Operation operation, const BenchOptions& options);

  GeometryQuery query(Bytes size) const;
  ConstBuffer input() const;
  Buffer output() const;
  std::span<const std::byte> expected(const Region& region) const;

  Communicator communicator_;
  Operation operation_;
  DataType type_;
  std::uint32_t root_;
  bool in_place_;
  std::size_t offset_;  ///< Of both buffers from their page, in bytes.
  Parts parts_;
  ReduceOp redop_;
  std::vector<std::vector<std::byte>> inputs_;  ///< One period of each rank's input.
  std::vector<std::byte> reduced_;              ///< One period of the reduction.
  PageBuffer first_, second_;
  Geometry geometry_;
};

}  // namespace xylem::tools
