// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the device kernels, and their names. nvcc compiles this header for the device
// and for the host.
//
// xylem_reduce_OP_TYPE(ReduceArguments), where OP is sum, prod, min, max, and, or, xor, and TYPE is
// as name(DataType) prints it. xylem_exchange_OP_TYPE(ExchangeArguments), for the same operations
// and types. xylem_scale_TYPE(ScaleArguments), for the floating-point types.
// xylem_signal(SignalArguments).
//
// Every kernel runs with any number of blocks, of at most kMostThreads threads each, in one
// dimension; xylem_exchange and xylem_signal need at least kMostOperands and kMostSignals threads
// in each block. Each element is read and written by one thread alone. Kernels wait for nothing. A
// kernel is fast if all addresses of the launch are equally far from a boundary of 16 bytes.
#pragma once

#include <cstdint>

namespace xylem::execution::cuda {

/// A launch takes at most this many sources.
inline constexpr std::uint32_t kMostSources = 128;

/// A CUDA block has at most this many threads.
inline constexpr std::uint32_t kMostThreads = 256;

/// The arguments of a reduction as ReduceKernel (reduce_kernel.h) defines it. Results have the same
/// bits as those of the CPU's kernels.
struct ReduceArguments {
  void* target = nullptr;
  std::uint64_t count = 0;  ///< Number of elements.
  std::uint32_t source_count = 0;
  std::uint32_t divisor = 1;  ///< Finish::divisor; sum only.
  /// If the word is not 0 when the kernel begins, the kernel does nothing. Null: there is no word.
  const std::uint32_t* stop = nullptr;
  const void* sources[kMostSources] = {};
};

/// The arguments of a scaling as ScaleKernel (reduce_kernel.h) defines it.
struct ScaleArguments {
  void* target = nullptr;
  const void* source = nullptr;
  std::uint64_t count = 0;
  double factor = 1;
  const std::uint32_t* stop = nullptr;  ///< As in ReduceArguments.
};

/// What a rank of a mesh publishes to its peers at the beginning of a call, so that direct calls
/// can use its buffers (StreamProgram).
struct PeerCall {
  std::uint64_t input = 0;  ///< Addresses of the rank's buffers.
  std::uint64_t output = 0;
  std::uint64_t call = 0;  ///< StreamProgram::call
};

/// A launch signals at most this many peers.
inline constexpr std::uint32_t kMostSignals = 31;

/// The arguments of xylem_signal, which sets flags[i] to 1 after all work that was enqueued on the
/// stream before. Each flag is set by one thread. If peer_calls[i] is not null, this thread first
/// writes `own` to *peer_calls[i].
struct SignalArguments {
  std::uint32_t* flags[kMostSignals] = {};
  PeerCall* peer_calls[kMostSignals] = {};
  PeerCall own;
  std::uint32_t count = 0;
  const std::uint32_t* stop = nullptr;  ///< As in ReduceArguments.
};

/// A launch has at most this many operands: a target and a source of each rank of a mesh.
inline constexpr std::uint32_t kMostOperands = 64;

/// The arguments of a reduction into several targets: target[i] = source[0][i] ∘ source[1][i] ∘ …
/// for each target, as ReduceKernel defines it. With one source it is a copy. Operands may be
/// buffers of other ranks, which have published the addresses (PeerCall). If one of these ranks has
/// published a number other than `call`, the kernel accesses no operand. In either case the kernel
/// sets `flags` at its end.
struct ExchangeArguments {
  /// A value of Operand::buffer: the operand is a buffer of this rank. Other values are 2 · r for
  /// the input of rank r, and 2 · r + 1 for its output.
  static constexpr std::uint32_t kHere = ~std::uint32_t{0};
  struct Operand {
    std::uint64_t place = 0;  ///< For kHere: an address. Otherwise: the offset in the buffer.
    std::uint32_t buffer = kHere;
  };

  std::uint64_t count = 0;  ///< Number of elements.
  std::uint32_t target_count = 0;
  std::uint32_t source_count = 0;
  std::uint32_t divisor = 1;  ///< As in ReduceArguments.
  std::uint32_t flag_count = 0;
  const std::uint32_t* stop = nullptr;   ///< As in ReduceArguments.
  const PeerCall* peer_calls = nullptr;  ///< peer_calls[r] is the PeerCall of rank r.
  std::uint64_t call = 0;
  /// Counts the blocks that have ended, so that the last block sets the flags. The word must be 0
  /// before the launch. A launch sets it to 0 again, unless it was stopped. Only one launch at a
  /// time may use it.
  std::uint32_t* ended = nullptr;
  std::uint32_t* flags[kMostSignals] = {};
  Operand operands[kMostOperands] = {};  ///< First the targets, then the sources.
};

}  // namespace xylem::execution::cuda
