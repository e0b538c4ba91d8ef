// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream_batch.h"

#include <algorithm>
#include <iterator>
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

void StreamBatch::set_up(const Words& words,
                         Flush flush,
                         std::uint32_t most_waiting_blocks) noexcept {
  words_ = words;
  flush_ = flush;
  most_waiting_bytes_ = most_waiting_blocks * LoadedKernels::kBytesPerBlock;
}

void StreamBatch::begin(CUstream stream, KernelId copy, Signals signals) noexcept {
  stream_ = stream;
  copy_ = copy;
  signals_ = signals;
  has_enqueued_ = false;
  stage_ = Stage::none;
  operations_.clear();
}

Status StreamBatch::add_write(CUdeviceptr word, std::uint64_t value) {
  auto& handshake = launch_.handshake;
  if (signals_ == Signals::fused && stage_ != Stage::none &&
      handshake.write_count < std::size(handshake.writes)) {
    stage_ = Stage::writes;
    handshake.writes[handshake.write_count++] = {reinterpret_cast<std::uint64_t*>(pointer(word)),
                                                 value};
    return {};
  }
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operation.writeValue.address = word;
  operation.writeValue.value64 = value;
  return add(operation);
}

Status StreamBatch::add_set(CUdeviceptr word, std::uint32_t value) {
  return add(write_of(word, value));
}

Status StreamBatch::add_wait(std::uint32_t rank, std::uint32_t channel) {
  std::uint32_t* const flag = words_.flags[channel] + rank;
  if (signals_ == Signals::fused) {
    XYLEM_TRY(go_to(channel == 0 ? Stage::awaits : Stage::awaits_end));
    launch_.handshake.awaited[channel] |= 1U << rank;
    return {};
  }
  // GEQ, since release() sets a flag to kReleased.
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = address(flag);
  operation.waitValue.value = kSignalled;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  if (flush_ == Flush::yes) operation.waitValue.flags |= CU_STREAM_WAIT_VALUE_FLUSH;
  XYLEM_TRY(add(operation));
  return add(write_of(address(flag), kClear));
}

Status StreamBatch::add(const CUstreamBatchMemOpParams& operation) {
  XYLEM_TRY(flush_launch());
  if (operations_.size() == kMostOperations) XYLEM_TRY(flush_operations());
  operations_.push_back(operation);
  return {};
}

/// The driver carries out the operations of a command in their order, and orders each write after
/// all earlier work of the stream. So a peer that finds the flag set also finds the call.
Status StreamBatch::add_begin(const Handshake::Begin& begin) {
  auto& handshake = launch_.handshake;
  if (signals_ != Signals::by_writes) {
    XYLEM_TRY(go_to(Stage::begins));
    handshake.begins[handshake.begin_count++] = begin;
    return {};
  }
  XYLEM_TRY(add_write(address(&begin.peer_call->input), begin.own.input));
  XYLEM_TRY(add_write(address(&begin.peer_call->output), begin.own.output));
  XYLEM_TRY(add_write(address(&begin.peer_call->call), begin.own.call));
  return add_set(address(begin.flag), kSignalled);
}

Status StreamBatch::add_end(std::uint32_t* flag) {
  if (signals_ == Signals::by_writes && stage_ == Stage::none) {
    return add_set(address(flag), kSignalled);
  }
  XYLEM_TRY(go_to(Stage::ends));
  launch_.handshake.ends[launch_.handshake.end_count++] = flag;
  return {};
}

/// Makes a launch pending to which work of this stage can be added.
Status StreamBatch::go_to(Stage stage) {
  const bool has_room = (stage != Stage::begins || launch_.handshake.begin_count < kMostSignals) &&
                        (stage != Stage::ends || launch_.handshake.end_count < kMostSignals);
  if (stage_ != Stage::none && stage_ <= stage && has_room) {
    stage_ = stage;
    return {};
  }
  XYLEM_TRY(flush());
  launch_ = ExchangeArguments();
  launch_.stop = words_.stop;
  launch_.handshake.ended = words_.ended;
  std::ranges::copy(words_.flags, launch_.handshake.own_flags);
  kernel_ = copy_;
  bytes_ = 0;
  stage_ = stage;
  return {};
}

Status StreamBatch::add_exchange(KernelId kernel,
                                 std::uint64_t bytes,
                                 const ExchangeArguments& arguments) {
  if (stage_ == Stage::exchange && join(kernel, arguments)) {
    bytes_ = std::max(bytes_, bytes);
    return {};
  }
  if (stage_ == Stage::exchange) XYLEM_TRY(flush());
  XYLEM_TRY(go_to(Stage::exchange));
  const Handshake handshake = launch_.handshake;
  launch_ = arguments;
  launch_.handshake = handshake;
  launch_.stop = words_.stop;
  kernel_ = kernel;
  bytes_ = bytes;
  return {};
}

/// Makes a copy a part of the pending exchange, if that consists of copies with equal numbers of
/// targets. False if it does not.
bool StreamBatch::join(KernelId kernel, const ExchangeArguments& copy) {
  const bool fits = kernel == kernel_ && copy.target_count == 1 && launch_.target_count == 1 &&
                    copy.source_count == 1 && launch_.source_count == 1 &&
                    copy.begin == launch_.begin && copy.is_sliced == launch_.is_sliced &&
                    launch_.part_count < kMostParts;
  if (!fits) return false;
  const std::uint32_t parts = launch_.part_count++;
  auto* const operands = launch_.operands;
  std::copy_backward(operands + parts, operands + 2 * parts, operands + 2 * parts + 1);
  operands[parts] = copy.operands[0];
  operands[2 * parts + 1] = copy.operands[1];
  launch_.counts[parts] = copy.counts[0];
  return true;
}

Status StreamBatch::add_scale(KernelId kernel, std::uint64_t bytes, ScaleArguments arguments) {
  XYLEM_TRY(flush());
  arguments.stop = words_.stop;
  return note(kernels_.launch(stream_, kernel, bytes, arguments), "cuLaunchKernel");
}

Status StreamBatch::flush() {
  XYLEM_TRY(flush_launch());
  return flush_operations();
}

Status StreamBatch::flush_launch() {
  if (std::exchange(stage_, Stage::none) == Stage::none) return {};
  const auto& awaited = launch_.handshake.awaited;
  const bool waits = (awaited[0] | awaited[1]) != 0;
  const std::uint64_t bytes = waits ? std::min(bytes_, most_waiting_bytes_) : bytes_;
  return note(kernels_.launch(stream_, kernel_, bytes, launch_), "cuLaunchKernel");
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
