// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the device kernels, and their names. nvcc compiles this header for the device
// and for the host.
//
// xylem_reduce_OP_TYPE(ReduceArguments), where OP is sum, prod, min, max, and, or, xor, and TYPE is
// as name(DataType) prints it. xylem_exchange_OP_TYPE(ExchangeArguments), for the same operations
// and types. xylem_scale_TYPE(ScaleArguments), for the floating-point types.
//
// Every kernel runs with any number of blocks, of at most kMostThreads threads each, in one
// dimension; xylem_exchange needs at least kMostOperands threads in each block. Each element is
// read and written by one thread alone. A kernel is fast if all addresses of the launch are equally
// far from a boundary of 16 bytes. Only xylem_exchange waits, and only if its Handshake says so.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define XYLEM_DEVICE __host__ __device__ __forceinline__
#define XYLEM_PRAGMA(text) _Pragma(#text)
#else
#define XYLEM_DEVICE inline
#define XYLEM_PRAGMA(text)
#endif

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

/// What a rank of a mesh publishes to one of its peers in each round of a call: which parts of its
/// buffers the peer uses (StreamProgram).
struct PeerCall {
  std::uint64_t input = 0;  ///< Addresses for the peer.
  std::uint64_t output = 0;
  /// call_of() of StreamProgram::call and of the number of elements that the peer uses. Bit 0 is
  /// set if an address is in the rank's staging memory, which has room for one slice.
  std::uint64_t call = 0;
};

/// A number for a call in which one rank uses `count` elements of another. Bit 0 is not set.
XYLEM_DEVICE constexpr std::uint64_t call_of(std::uint64_t call, std::uint64_t count) {
  return (call ^ (count * 0x9E3779B97F4A7C15)) & ~std::uint64_t{1};
}

/// What a kernel notes if the data of `rank` do not match in call `number`.
XYLEM_DEVICE constexpr std::uint64_t mismatch_of(std::uint64_t number, std::uint32_t rank) {
  return number << 8 | (rank + 1);
}

/// A launch signals at most this many peers.
inline constexpr std::uint32_t kMostSignals = 31;
/// Ranks signal each other on this many channels: at the beginning and at the end of a round.
inline constexpr std::uint32_t kChannels = 2;

/// The values of a flag: not set, set by a peer, and set by its own rank to end all waits.
inline constexpr std::uint32_t kClear = 0, kSignalled = 1, kReleased = 2;

/// How a launch synchronizes with the other ranks. Every member that is empty is left out.
///
/// The first block publishes `begins`. All blocks wait for the flags of channel 0. When all blocks
/// have computed, the last of them clears these flags, sets the flags `ends`, waits for the flags
/// of channel 1, clears them, and writes `writes`.
///
/// If the stop word is set when a block begins, or if a flag for which it waits is kReleased, then
/// the block does not compute, and the last block sets no flag in `ends` and does not wait.
/// `writes` are written nevertheless, in their order.
struct Handshake {
  /// Writes `own` to `*peer_call`, and then sets `*flag`.
  struct Begin {
    std::uint32_t* flag = nullptr;
    PeerCall* peer_call = nullptr;
    PeerCall own;
  };
  struct Write {
    std::uint64_t* word = nullptr;
    std::uint64_t value = 0;
  };

  std::uint32_t begin_count = 0;
  std::uint32_t end_count = 0;
  std::uint32_t write_count = 0;
  /// Bit r of awaited[c]: the launch waits for own_flags[c][r], which rank r sets.
  std::uint32_t awaited[kChannels] = {};
  std::uint32_t* own_flags[kChannels] = {};
  /// Counts the blocks that have ended. The word must be 0 before the launch, which sets it to 0
  /// again. Only one launch at a time may use it. Not used if there are only `begins`.
  std::uint32_t* ended = nullptr;
  Begin begins[kMostSignals] = {};
  std::uint32_t* ends[kMostSignals] = {};
  Write writes[2] = {};
};

/// A launch has at most this many operands: a target and a source of each rank of a mesh.
inline constexpr std::uint32_t kMostOperands = 64;
/// A launch has at most this many parts.
inline constexpr std::uint32_t kMostParts = 32;

/// The arguments of independent reductions, each into several targets: in each part,
/// target[i] = source[0][i] ∘ source[1][i] ∘ … for each target, as ReduceKernel defines it. With
/// one source it is a copy. Operands may be buffers of other ranks, which have published the
/// addresses (PeerCall). If one of these ranks has published another call, or another number of
/// elements, the kernel accesses no operand. It writes mismatch_of() of this call and this rank to
/// `*mismatch`, if that is still 0. In either case the handshake goes on.
///
/// A call may have several rounds, in each of which a rank publishes where the next slice of its
/// chunk is. A part none of whose operands is in staging memory is computed as a whole in the first
/// round. The later rounds then skip it.
struct ExchangeArguments {
  /// A value of Operand::buffer: the operand is a buffer of this rank. Other values are 2 · r for
  /// the input of rank r, and 2 · r + 1 for its output.
  static constexpr std::uint32_t kHere = ~std::uint32_t{0};
  struct Operand {
    std::uint64_t place = 0;  ///< For kHere: the address of the slice.
    std::uint32_t buffer = kHere;
  };

  std::uint32_t part_count = 0;    ///< With no part, the launch is only a handshake.
  std::uint32_t target_count = 0;  ///< Of each part.
  std::uint32_t source_count = 0;  ///< Of each part.
  std::uint32_t divisor = 1;       ///< As in ReduceArguments.
  std::uint64_t begin = 0;         ///< The first element of the slice of this round.
  std::uint64_t slice = 0;         ///< The number of elements of a slice.
  /// True if every part is computed slice by slice: this rank's input is in staging memory, or the
  /// call overwrites it.
  bool is_sliced = false;
  const std::uint32_t* stop = nullptr;   ///< As in ReduceArguments.
  const PeerCall* peer_calls = nullptr;  ///< peer_calls[r] is the PeerCall of rank r.
  std::uint64_t call = 0;                ///< StreamProgram::call
  std::uint64_t number = 0;              ///< Of the call, among those of this rank.
  std::uint64_t* mismatch = nullptr;
  std::uint64_t counts[kMostParts] = {};  ///< Number of elements of each part, in all rounds.
  /// First the targets of part 0, then those of part 1, …; then the sources in the same order.
  Operand operands[kMostOperands] = {};
  Handshake handshake;
};
static_assert(sizeof(ExchangeArguments) < 4096, "kernels take at most 4 KiB of parameters");

}  // namespace xylem::execution::cuda
