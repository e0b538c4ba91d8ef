// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the device kernels, and their names. nvcc compiles this header for the device
// and for the host.
//
// xylem_reduce_OP_TYPE(ReduceArguments), OP: sum prod min max and or xor; TYPE: as name(DataType)
// prints it. xylem_exchange_OP_TYPE(ExchangeArguments), for the same. xylem_scale_TYPE(
// ScaleArguments), for the floating-point types. xylem_signal(SignalArguments).
//
// Every kernel runs with any number of blocks, of at most kMostThreads threads each, in one
// dimension; xylem_exchange and xylem_signal need at least kMostOperands and kMostSignals threads
// in each block. Each element is read and written by one thread alone. Kernels wait for nothing.
// They are fast if all addresses of a launch are equally far from a boundary of 16 bytes.
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

/// What a rank of a mesh tells another one at the beginning of a direct call (StreamProgram).
struct PeerCall {
  std::uint64_t input = 0;  ///< Where its buffers are.
  std::uint64_t output = 0;
  std::uint64_t call = 0;  ///< StreamProgram::call
};

/// A launch signals at most this many peers.
inline constexpr std::uint32_t kMostSignals = 31;

/// Sets flags[i] to 1, one by each thread, after everything that was enqueued on the stream before.
/// Before that, writes this rank's call to peer_calls[i], if that is not null.
struct SignalArguments {
  std::uint32_t* flags[kMostSignals] = {};
  PeerCall* peer_calls[kMostSignals] = {};
  PeerCall own;
  std::uint32_t count = 0;
  const std::uint32_t* stop = nullptr;  ///< As in ReduceArguments.
};

/// A launch has at most this many operands: a target and a source of each rank of a mesh.
inline constexpr std::uint32_t kMostOperands = 64;

/// Reduces into several targets: target[i] = source[0][i] ∘ source[1][i] ∘ … for each target, as
/// ReduceKernel defines it. With one source it copies. Operands may be buffers of other ranks,
/// which have published where these are. If one of these ranks has published another `call`, the
/// kernel touches no operand. In either case it sets `flags` at the end.
struct ExchangeArguments {
  /// In Operand::buffer; otherwise twice the number of a rank, plus one for its output.
  static constexpr std::uint32_t kHere = ~std::uint32_t{0};
  struct Operand {
    std::uint64_t place = 0;  ///< Of kHere: an address. Otherwise: the offset in the buffer.
    std::uint32_t buffer = kHere;
  };

  std::uint64_t count = 0;  ///< Elements.
  std::uint32_t target_count = 0;
  std::uint32_t source_count = 0;
  std::uint32_t divisor = 1;  ///< As in ReduceArguments.
  std::uint32_t flag_count = 0;
  const std::uint32_t* stop = nullptr;   ///< As in ReduceArguments.
  const PeerCall* peer_calls = nullptr;  ///< [rank]
  std::uint64_t call = 0;
  /// Counts the blocks that have ended, so that the last one sets the flags. 0 before the launch,
  /// and after it, unless it was stopped. Only one launch at a time uses it.
  std::uint32_t* ended = nullptr;
  std::uint32_t* flags[kMostSignals] = {};
  Operand operands[kMostOperands] = {};  ///< First the targets, then the sources.
};

}  // namespace xylem::execution::cuda
