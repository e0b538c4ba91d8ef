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

/// What sets the flags of other ranks. Kernels do not set them if the stop word is set.
enum class Signals : std::uint8_t { by_kernels, by_writes };

/// Whether a stream that has waited for a flag also waits until what other devices wrote before is
/// visible (CU_STREAM_WAIT_VALUE_FLUSH).
enum class Flush : std::uint8_t { no, yes };

/// Enqueues work on one stream at a time, in the order in which it was added. Consecutive signals
/// become one kernel, or memory operations (Signals), and consecutive memory operations become one
/// command. The kernel of an exchange also sets the flags of the signals that follow it. Added work
/// is enqueued when work of another kind is added, or by flush(); until then it is pending. After
/// an error, no work is pending. Only one thread at a time may call it, and the context must be
/// current.
class StreamBatch {
 public:
  StreamBatch(const Driver& driver, const LoadedKernels& kernels);

  /// Begins a call on a stream, and discards pending work. Kernels that begin after `*stop` was set
  /// do nothing. `signal` is the kernel for SignalArguments.
  void begin(CUstream stream,
             const std::uint32_t* stop,
             KernelId signal,
             Signals signals,
             Flush flush) noexcept;

  /// Writes a word of 64 bits.
  Status add_write(CUdeviceptr word, std::uint64_t value);
  /// Sets a flag of this device.
  Status add_set(CUdeviceptr flag);
  /// Makes the stream wait until a flag is 1, and then clears the flag.
  Status add_wait(CUdeviceptr flag);
  /// Sets a flag of any device. If `peer_call` is not null, first writes `own` to `*peer_call`.
  Status add_signal(std::uint32_t* flag, PeerCall* peer_call, const PeerCall& own);
  /// Copies or reduces between buffers of different ranks. StreamBatch itself sets the members
  /// `stop`, `flags` and `flag_count` of the arguments. Consecutive copies become one kernel, so
  /// none may use what the one before it writes, unless flush() is called between them. `arguments`
  /// have one part, of `bytes`.
  Status add_exchange(KernelId kernel, std::uint64_t bytes, const ExchangeArguments& arguments);
  Status add_scale(KernelId kernel, std::uint64_t bytes, ScaleArguments arguments);

  /// Enqueues all pending work.
  Status flush();
  /// Whether any work of the call has been enqueued on the stream.
  bool has_enqueued() const noexcept { return has_enqueued_; }

 private:
  Status add(const CUstreamBatchMemOpParams& operation);
  Status write_signal(std::uint32_t* flag, PeerCall* peer_call, const PeerCall& own);
  bool join(KernelId kernel, const ExchangeArguments& copy);
  Status flush_exchange();
  Status flush_signals();
  Status flush_operations();
  Status note(CUresult result, std::string_view function);

  const Driver& driver_;
  const LoadedKernels& kernels_;
  CUstream stream_ = nullptr;
  const std::uint32_t* stop_ = nullptr;
  KernelId signal_ = 0;
  Signals how_ = Signals::by_kernels;
  Flush flush_ = Flush::no;
  bool has_enqueued_ = false;
  // At most one of these three contains pending work.
  ExchangeArguments exchange_;
  SignalArguments signals_;
  std::vector<CUstreamBatchMemOpParams> operations_;
  KernelId exchange_kernel_ = 0;
  std::uint64_t exchange_bytes_ = 0;  ///< 0: no exchange is pending.
};

}  // namespace xylem::execution::cuda
