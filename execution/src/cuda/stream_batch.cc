// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream_batch.h"

#include <algorithm>
#include <utility>

namespace xylem::execution::cuda {

namespace {

constexpr std::size_t kMostOperations = 128;  ///< Of one command; the driver accepts 256.

CUstreamBatchMemOpParams write_of(CUdeviceptr word, std::uint32_t value) noexcept {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  return operation;
}

}  // namespace

StreamBatch::StreamBatch(const Driver& driver, const LoadedKernels& kernels)
    : driver_(driver), kernels_(kernels) {
  operations_.reserve(kMostOperations);
}

void StreamBatch::begin(CUstream stream,
                        const std::uint32_t* stop,
                        KernelId signal,
                        Signals signals,
                        Flush flush) noexcept {
  flush_ = flush;
  stream_ = stream;
  how_ = signals;
  stop_ = stop;
  signal_ = signal;
  has_enqueued_ = false;
  exchange_bytes_ = 0;
  signals_.count = 0;
  operations_.clear();
}

Status StreamBatch::add_write(CUdeviceptr word, std::uint64_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operation.writeValue.address = word;
  operation.writeValue.value64 = value;
  return add(operation);
}

Status StreamBatch::add_set(CUdeviceptr flag) { return add(write_of(flag, 1)); }

Status StreamBatch::add_wait(CUdeviceptr flag) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = flag;
  operation.waitValue.value = 1;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  if (flush_ == Flush::yes) operation.waitValue.flags |= CU_STREAM_WAIT_VALUE_FLUSH;
  XYLEM_TRY(add(operation));
  return add(write_of(flag, 0));
}

Status StreamBatch::add(const CUstreamBatchMemOpParams& operation) {
  XYLEM_TRY(flush_exchange());
  XYLEM_TRY(flush_signals());
  if (operations_.size() == kMostOperations) XYLEM_TRY(flush_operations());
  operations_.push_back(operation);
  return {};
}

Status StreamBatch::add_signal(std::uint32_t* flag, PeerCall* peer_call, const PeerCall& own) {
  if (exchange_bytes_ > 0 && peer_call == nullptr && exchange_.flag_count < kMostSignals) {
    exchange_.flags[exchange_.flag_count++] = flag;
    return {};
  }
  if (how_ == Signals::by_writes) return write_signal(flag, peer_call, own);
  XYLEM_TRY(flush_exchange());
  XYLEM_TRY(flush_operations());
  const std::uint32_t i = signals_.count++;
  signals_.flags[i] = flag;
  signals_.peer_calls[i] = peer_call;
  signals_.own[i] = own;
  return signals_.count == kMostSignals ? flush_signals() : Status();
}

/// The driver carries out the operations of a command in their order, and orders each write after
/// all earlier work of the stream. So a peer that finds the flag set also finds the call.
Status StreamBatch::write_signal(std::uint32_t* flag, PeerCall* peer_call, const PeerCall& own) {
  if (peer_call != nullptr) {
    XYLEM_TRY(add_write(address(&peer_call->input), own.input));
    XYLEM_TRY(add_write(address(&peer_call->output), own.output));
    XYLEM_TRY(add_write(address(&peer_call->call), own.call));
  }
  return add_set(address(flag));
}

Status StreamBatch::add_exchange(KernelId kernel,
                                 std::uint64_t bytes,
                                 const ExchangeArguments& arguments) {
  if (exchange_bytes_ > 0 && join(kernel, arguments)) {
    exchange_bytes_ = std::max(exchange_bytes_, bytes);
    return {};
  }
  XYLEM_TRY(flush());
  exchange_ = arguments;
  exchange_.stop = stop_;
  exchange_.flag_count = 0;
  exchange_kernel_ = kernel;
  exchange_bytes_ = bytes;
  return {};
}

/// Makes a copy a part of the pending exchange, if that consists of copies with equal numbers of
/// targets. False if it does not.
bool StreamBatch::join(KernelId kernel, const ExchangeArguments& copy) {
  const bool fits = kernel == exchange_kernel_ && exchange_.flag_count == 0 &&
                    copy.target_count == 1 && exchange_.target_count == 1 &&
                    copy.source_count == 1 && exchange_.source_count == 1 &&
                    copy.begin == exchange_.begin && copy.is_sliced == exchange_.is_sliced &&
                    exchange_.part_count < kMostParts;
  if (!fits) return false;
  const std::uint32_t parts = exchange_.part_count++;
  auto* const operands = exchange_.operands;
  std::copy_backward(operands + parts, operands + 2 * parts, operands + 2 * parts + 1);
  operands[parts] = copy.operands[0];
  operands[2 * parts + 1] = copy.operands[1];
  exchange_.counts[parts] = copy.counts[0];
  return true;
}

Status StreamBatch::add_scale(KernelId kernel, std::uint64_t bytes, ScaleArguments arguments) {
  XYLEM_TRY(flush());
  arguments.stop = stop_;
  return note(kernels_.launch(stream_, kernel, bytes, arguments), "cuLaunchKernel");
}

Status StreamBatch::flush() {
  XYLEM_TRY(flush_exchange());
  XYLEM_TRY(flush_signals());
  return flush_operations();
}

Status StreamBatch::flush_exchange() {
  const std::uint64_t bytes = std::exchange(exchange_bytes_, 0);
  if (bytes == 0) return {};
  return note(kernels_.launch(stream_, exchange_kernel_, bytes, exchange_), "cuLaunchKernel");
}

Status StreamBatch::flush_signals() {
  if (signals_.count == 0) return {};
  signals_.stop = stop_;
  const CUresult result = kernels_.launch(stream_, signal_, 0, signals_);
  signals_.count = 0;
  return note(result, "cuLaunchKernel");
}

Status StreamBatch::flush_operations() {
  if (operations_.empty()) return {};
  const CUresult result = driver_.cuStreamBatchMemOp(
      stream_, static_cast<unsigned>(operations_.size()), operations_.data(), 0);
  operations_.clear();
  return note(result, "cuStreamBatchMemOp");
}

Status StreamBatch::note(CUresult result, std::string_view function) {
  has_enqueued_ |= result == CUDA_SUCCESS;
  return driver_.check(result, function);
}

}  // namespace xylem::execution::cuda
