// SPDX-License-Identifier: Apache-2.0
//
// The functions that combine and scale elements. A program has the functions for the operation and
// type of its call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xylem::execution {

/// The division that ends an average: the combined value is divided by `divisor` before it is
/// rounded and stored. 1 means none. Only sum, avg and premul_sum accept another divisor than 1.
struct Finish {
  std::uint32_t divisor = 1;
};

/// A reduction: target[i] = op(sources[0][i], …, sources[n-1][i]), evaluated from left to right,
/// then divided as `finish` says. `source_count` ≥ 1. `target` may be one of the sources; otherwise
/// it must not overlap them. `avg` and `premul_sum` combine as sum. Addresses need only the
/// element's alignment. The bits of a result depend neither on the instruction set nor on the index
/// of the element. A NaN is stored as the positive quiet NaN without payload.
using ReduceKernel = void (*)(void* target,
                              const void* const* sources,
                              std::size_t source_count,
                              std::size_t count,
                              Finish finish);

/// target[i] = source[i] · factor. `target` may be `source`; otherwise they must not overlap.
using ScaleKernel = void (*)(void* target, const void* source, std::size_t count, double factor);

/// Identifies a kernel of a device, since a device cannot call functions of the CPU. It is an index
/// into the list of kernel names with which the Compute was made (CudaOptions::kernel_names).
using KernelId = std::uint16_t;

/// What a program computes with the elements of its call.
struct Arithmetic {
  ReduceKernel reduce = nullptr;  ///< Null if the collective does not reduce.
  std::uint32_t divisor = 1;      ///< The number of ranks for an average.
  /// If set, copies out of the input multiply it by the factor of the call (premul_sum). The
  /// schedule must then be staged with Staging::input, so that only copies read the input.
  ScaleKernel scale = nullptr;
  KernelId reduce_id = 0, scale_id = 0;  ///< The device kernels that compute the same.
};

}  // namespace xylem::execution
