// SPDX-License-Identifier: Apache-2.0
//
// StreamBatch: the work of a call on a mesh, collected so that its stream gets few commands.
#pragma once

#include "cuda/driver.h"
#include "cuda/loaded_kernels.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace xylem::execution::cuda {

/// Enqueues work on one stream at a time, in the order in which it was added. Signals that follow
/// each other become one kernel, memory operations that follow each other one command, and an
/// exchange sets the flags of the signals that follow it. Only the last work can be pending: it is
/// enqueued when work of another kind is added, or by flush(). After an error, nothing is pending.
/// One thread at a time may call it, and the context must be current.
class StreamBatch {
 public:
  StreamBatch(const Driver& driver, const LoadedKernels& kernels);

  /// Begins a call on a stream; drops what is pending. Kernels that begin after `*stop` was set do
  /// nothing. `signal` is the kernel for SignalArguments.
  void begin(CUstream stream, const std::uint32_t* stop, KernelId signal) noexcept;

  /// Writes a word.
  Status add_write(CUdeviceptr word, std::uint64_t value);
  /// Sets a flag of this device.
  Status add_set(CUdeviceptr flag);
  /// Waits until a flag is 1, and clears it.
  Status add_wait(CUdeviceptr flag);
  /// Sets a flag of any device. Before that, writes `own` to `peer_call`, if that is not null;
  /// `own` is the same for all signals of a call.
  Status add_signal(std::uint32_t* flag, PeerCall* peer_call, const PeerCall& own);
  /// Copies or reduces among the buffers of ranks. The stop word and the flags are filled in here.
  Status add_exchange(KernelId kernel, std::uint64_t bytes, const ExchangeArguments& arguments);
  /// Launches a kernel for ReduceArguments or ScaleArguments.
  template <class Arguments>
  Status launch(KernelId kernel, std::uint64_t bytes, Arguments& arguments) {
    XYLEM_TRY(flush());
    arguments.stop = stop_;
    return note(kernels_.launch(stream_, kernel, bytes, arguments), "cuLaunchKernel");
  }
  /// Copies, also if the stop word is set.
  Status copy(void* target, const void* source, std::uint64_t bytes);

  Status flush();
  /// Whether the stream has got anything of the call.
  bool has_enqueued() const noexcept { return has_enqueued_; }

 private:
  Status add(const CUstreamBatchMemOpParams& operation);
  Status flush_exchange();
  Status flush_signals();
  Status flush_operations();
  Status note(CUresult result, std::string_view function);

  const Driver& driver_;
  const LoadedKernels& kernels_;
  CUstream stream_ = nullptr;
  const std::uint32_t* stop_ = nullptr;
  KernelId signal_ = 0;
  bool has_enqueued_ = false;
  // At most one of these three is pending.
  ExchangeArguments exchange_;
  SignalArguments signals_;
  std::vector<CUstreamBatchMemOpParams> operations_;
  KernelId exchange_kernel_ = 0;
  std::uint64_t exchange_bytes_ = 0;  ///< 0: no exchange is pending.
};

}  // namespace xylem::execution::cuda
