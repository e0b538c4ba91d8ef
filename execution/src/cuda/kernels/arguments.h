// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the device kernels, and their names. nvcc compiles this header for the device
// and for the host.
//
// xylem_reduce_OP_TYPE(ReduceArguments), OP: sum prod min max and or xor; TYPE: as name(DataType)
// prints it. xylem_scale_TYPE(ScaleArguments), for the floating-point types.
// xylem_signal(SignalArguments).
//
// Every kernel runs with any number of blocks, of at most kMostThreads threads each, in one
// dimension. Each element is read and written by one thread alone. Kernels use no shared memory and
// no barrier, and wait for nothing. They are fast if all addresses of a launch are equally far from
// a boundary of 16 bytes.
#pragma once

#include <cstdint>

namespace xylem::execution::cuda {

/// A launch takes at most this many sources.
inline constexpr std::uint32_t kMostSources = 128;

/// A block has at most this many threads.
inline constexpr std::uint32_t kMostThreads = 256;

/// As ReduceKernel (reduce_kernel.h) defines it, with the same bits as the CPU's.
struct ReduceArguments {
  void* target = nullptr;
  std::uint64_t count = 0;  ///< Elements.
  std::uint32_t source_count = 0;
  std::uint32_t divisor = 1;  ///< Finish::divisor; sum only.
  /// If the word is not 0 when the kernel begins, the kernel does nothing. Null: there is no word.
  const std::uint32_t* stop = nullptr;
  const void* sources[kMostSources] = {};
};

/// As ScaleKernel (reduce_kernel.h) defines it.
struct ScaleArguments {
  void* target = nullptr;
  const void* source = nullptr;
  std::uint64_t count = 0;
  double factor = 1;
  const std::uint32_t* stop = nullptr;  ///< As in ReduceArguments.
};

/// A launch signals at most this many peers.
inline constexpr std::uint32_t kMostSignals = 31;

/// Sets flags[i] to 1, one by each thread, after everything that the stream was given before. Needs
/// at least `count` threads.
struct SignalArguments {
  std::uint32_t* flags[kMostSignals] = {};
  std::uint32_t count = 0;
  const std::uint32_t* stop = nullptr;  ///< As in ReduceArguments.
};

}  // namespace xylem::execution::cuda
