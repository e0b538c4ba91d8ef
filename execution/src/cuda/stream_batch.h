// SPDX-License-Identifier: Apache-2.0
//
// StreamBatch: collects the work of a call on a mesh, so that few commands are enqueued on its
// stream.
#pragma once

#include "cuda/driver.h"
#include "cuda/loaded_kernels.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace xylem::execution::cuda {

/// What sets the flags of other ranks, and what waits for the flags of this rank. Ranks with
/// different values can make the same call. Kernels set no flag if the stop word is set.
enum class Signals : std::uint8_t {
  by_writes,   ///< Memory operations of the stream do both.
  by_kernels,  ///< Kernels set flags, and memory operations wait.
  /// Kernels do both, so that a call is one kernel. While it waits, it occupies multiprocessors, so
  /// no peer may need them.
  fused,
};

/// Whether a stream that has waited for a flag also waits until what other devices wrote before is
/// visible (CU_STREAM_WAIT_VALUE_FLUSH).
enum class Flush : std::uint8_t { no, yes };

/// Enqueues work on one stream at a time, in the order in which it was added. Consecutive memory
/// operations become one command. An exchange, the signals before and after it, and with
/// Signals::fused the waits too, become one kernel. Added work is enqueued when it cannot be joined
/// by work that is added, or by flush(); until then it is pending. After an error, no work is
/// pending. Only one thread at a time may call it, and the context must be current.
class StreamBatch {
 public:
  /// The words of a rank, in the memory of its device.
  struct Words {
    /// Kernels that begin after the word was set do nothing. Null: there is no such word.
    const std::uint32_t* stop = nullptr;
    std::uint32_t* flags[kChannels] = {};  ///< flags[c][r] is set by rank r.
    std::uint32_t* ended = nullptr;        ///< Handshake::ended
  };
  StreamBatch(const Driver& driver, const LoadedKernels& kernels);

  /// Sets how each call of this rank synchronizes. A kernel that waits has at most
  /// `most_waiting_blocks` blocks.
  void set_up(const Words& words, Flush flush, std::uint32_t most_waiting_blocks) noexcept;
  /// Begins a call on a stream, and discards pending work. `copy` is a kernel for
  /// ExchangeArguments.
  void begin(CUstream stream, KernelId copy, Signals signals) noexcept;

  /// Writes a word of 64 bits.
  Status add_write(CUdeviceptr word, std::uint64_t value);
  /// Sets a word of 32 bits.
  Status add_set(CUdeviceptr word, std::uint32_t value);
  /// Waits until the flag that `rank` sets on `channel` is set, and then clears it.
  Status add_wait(std::uint32_t rank, std::uint32_t channel);
  /// Publishes `own` to a peer, and then sets a flag of the peer. This begins a round.
  Status add_begin(const Handshake::Begin& begin);
  /// Sets a flag of a peer. This ends a round.
  Status add_end(std::uint32_t* flag);
  /// Copies or reduces between buffers of different ranks. StreamBatch itself sets the members
  /// `stop` and `handshake` of the arguments. Consecutive copies become one kernel, so none may use
  /// what the one before it writes, unless flush() is called between them. `arguments` have one
  /// part, of `bytes`.
  Status add_exchange(KernelId kernel, std::uint64_t bytes, const ExchangeArguments& arguments);
  Status add_scale(KernelId kernel, std::uint64_t bytes, ScaleArguments arguments);

  /// Enqueues all pending work.
  Status flush();
  /// Whether any work of the call has been enqueued on the stream.
  bool has_enqueued() const noexcept { return has_enqueued_; }

 private:
  /// What was last added to the pending launch. Only the same or later values can be added to it.
  enum class Stage : std::uint8_t { none, begins, awaits, exchange, ends, awaits_end, writes };

  Status add(const CUstreamBatchMemOpParams& operation);
  Status go_to(Stage stage);
  bool join(KernelId kernel, const ExchangeArguments& copy);
  Status flush_launch();
  Status flush_operations();
  Status note(CUresult result, std::string_view function);

  const Driver& driver_;
  const LoadedKernels& kernels_;
  Words words_;
  Flush flush_ = Flush::no;
  std::uint64_t most_waiting_bytes_ = 0;
  CUstream stream_ = nullptr;
  KernelId copy_ = 0;
  Signals signals_ = Signals::by_kernels;
  bool has_enqueued_ = false;
  // At most one of these two contains pending work.
  ExchangeArguments launch_;
  std::vector<CUstreamBatchMemOpParams> operations_;
  Stage stage_ = Stage::none;  ///< Of `launch_`; `none` if it is not pending.
  KernelId kernel_ = 0;        ///< For `launch_`.
  std::uint64_t bytes_ = 0;
};

}  // namespace xylem::execution::cuda
