// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh.h"

#include "xylem/base/check.h"
#include "xylem/base/clock.h"
#include "xylem/transport/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace xylem::execution::cuda {
namespace {

using Kind = StreamProgram::Kind;

constexpr std::uint64_t kWords = MeshMemories::kWords;
constexpr std::uint64_t kFirstFlag = 64;  ///< The stop word has a cache line of its own.
static_assert(kFirstFlag + kMeshChannels * kMostMeshRanks * sizeof(std::uint32_t) <= kWords);
constexpr std::size_t kMostOperations = 128;  ///< Of one batch; the driver takes 256.
constexpr std::chrono::seconds kPatience{2};
constexpr std::uint64_t kMeasuredBytes = std::uint64_t{4} << 20;  ///< Of one copy.
constexpr int kMeasuredCopies = 4;

CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }
std::byte* pointer(CUdeviceptr address) noexcept {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

// ---- memory ----

MeshMemories::~MeshMemories() {
  if (free_.empty()) return;
  const CurrentContext current(driver_, context_);
  for (const Memory& memory : free_) {
    driver_.cuMemFree(memory.words);
    driver_.cuMemFreeHost(memory.done);
  }
}

Result<MeshMemories::Memory> MeshMemories::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const Memory memory = free_.back();
      free_.pop_back();
      return memory;
    }
  }
  Memory memory;
  XYLEM_TRY(driver_.check(driver_.cuMemAlloc(&memory.words, bytes()), "cuMemAlloc"));
  void* done = nullptr;
  Status made =
      driver_.check(driver_.cuMemHostAlloc(&done, sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
                    "cuMemHostAlloc");
  if (made) {
    memory.done = static_cast<std::uint64_t*>(done);
    made = driver_.check(driver_.cuMemHostGetDevicePointer(&memory.done_on_device, done, 0),
                         "cuMemHostGetDevicePointer");
  }
  if (made) return memory;
  if (done != nullptr) driver_.cuMemFreeHost(done);
  driver_.cuMemFree(memory.words);
  return made;
}

void MeshMemories::give_back(const Memory& memory) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(memory);
}

// ---- beginning and end ----

Result<std::unique_ptr<Mesh>> CudaMesh::make(const Site& site, std::uint32_t rank) {
  std::unique_ptr<CudaMesh> made(new CudaMesh(site, rank));
  XYLEM_TRY(site.driver->check(site.driver->cuDevicePrimaryCtxRetain(&made->context_, site.device),
                               "cuDevicePrimaryCtxRetain"));
  XYLEM_TRY(made->set_up());
  return std::unique_ptr<Mesh>(std::move(made));
}

Status CudaMesh::set_up() {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  operations_.reserve(kMostOperations);
  XYLEM_TRY(make_streams());
  XYLEM_TRY(memory_, site_.memories.take());
  return prepare_memory();
}

Status CudaMesh::make_streams() {
  int least = 0, greatest = 0;
  XYLEM_TRY(driver_.check(driver_.cuCtxGetStreamPriorityRange(&least, &greatest),
                          "cuCtxGetStreamPriorityRange"));
  XYLEM_TRY(driver_.check(driver_.cuStreamCreateWithPriority(&own_, CU_STREAM_NON_BLOCKING, least),
                          "cuStreamCreateWithPriority"));
  XYLEM_TRY(driver_.check(
      driver_.cuStreamCreateWithPriority(&releases_, CU_STREAM_NON_BLOCKING, greatest),
      "cuStreamCreateWithPriority"));
  for (CUevent& end : ends_) {
    XYLEM_TRY(driver_.check(driver_.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  }
  return driver_.check(driver_.cuEventCreate(&begin_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

/// Clears the words, and names the memory for peers.
Status CudaMesh::prepare_memory() {
  *memory_.done = 0;
  XYLEM_TRY(driver_.check(
      driver_.cuMemsetD32Async(memory_.words, 0, kWords / sizeof(std::uint32_t), releases_),
      "cuMemsetD32Async"));
  XYLEM_TRY(driver_.check(driver_.cuStreamSynchronize(releases_), "cuStreamSynchronize"));
  const transport::ConstRegion region{.data = pointer(memory_.words),
                                      .bytes = site_.memories.bytes()};
  if (!site_.memory.share(region, seat_.scratch)) {
    return failure(Code::unsupported, "the device cannot share its memory");
  }
  CUuuid device{};
  XYLEM_TRY(driver_.check(driver_.cuDeviceGetUuid(&device, site_.device), "cuDeviceGetUuid"));
  seat_.scratch_bytes = scratch_bytes();
  static_assert(sizeof device == sizeof seat_.device);
  std::memcpy(seat_.device.data(), &device, sizeof device);
  return {};
}

Status CudaMesh::join(std::span<const MeshSeat> seats) {
  if (seats.size() > kMostMeshRanks) {
    return failure(Code::unsupported, fmt::format("{} ranks; at most {} can be in a mesh",
                                                  seats.size(), kMostMeshRanks));
  }
  for (std::size_t peer = 0; peer < seats.size(); ++peer) {
    const MeshSeat& seat = seats[peer];
    if (seat.scratch.process != seat_.scratch.process && seat.device == seat_.device) {
      return failure(Code::unsupported,
                     fmt::format("rank {} has the same GPU in another process", peer));
    }
    if (seat.scratch_bytes != scratch_bytes()) {
      return failure(Code::unsupported,
                     fmt::format("rank {} has {} bytes of scratch, and this rank {}", peer,
                                 seat.scratch_bytes, scratch_bytes()));
    }
    const std::byte* const base = site_.memory.open(seat.scratch, site_.memories.bytes(), {});
    if (base == nullptr) {
      return failure(Code::unsupported,
                     fmt::format("the GPU does not reach the memory of rank {}'s", peer));
    }
    seats_.push_back(seat);
    bases_.push_back(address(base));
  }
  return {};
}

Result<double> CudaMesh::measure() {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  const std::uint64_t bytes = std::min(scratch_bytes() / 2, kMeasuredBytes);
  // Halves, since the rank before this one reads the first half meanwhile.
  const CUdeviceptr target = bases_[rank_] + kWords + scratch_bytes() / 2;
  const CUdeviceptr source = bases_[(rank_ + 1) % bases_.size()] + kWords;
  const auto copy = [&](int times) -> Status {
    for (int i = 0; i < times; ++i) {
      XYLEM_TRY(driver_.check(driver_.cuMemcpyAsync(target, source, bytes, own_), "cuMemcpyAsync"));
    }
    return driver_.check(driver_.cuStreamSynchronize(own_), "cuStreamSynchronize");
  };
  XYLEM_TRY(copy(1));
  const auto begin = Clock::now();
  XYLEM_TRY(copy(kMeasuredCopies));
  const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
  return static_cast<double>(kMeasuredCopies * bytes) / std::max(took.count(), 1.0);
}

CudaMesh::~CudaMesh() {
  if (context_ == nullptr) return;
  const Deadline patience = Deadline::after(kPatience);
  while (!is_drained() && !patience.passed()) {
    stop();
    release();
    std::this_thread::yield();
  }
  for (std::size_t peer = 0; peer < bases_.size(); ++peer) {
    site_.memory.close(seats_[peer].scratch, {});
  }
  if (!is_drained() || was_captured_) {
    // A stream or a graph of the user may still refer to what it was given. So everything stays.
    [[maybe_unused]] auto* const kept = new std::shared_ptr(site_.kernels);
    return;
  }
  {
    const CurrentContext current(driver_, context_);
    for (const CUevent event : ends_) {
      if (event != nullptr) driver_.cuEventDestroy(event);
    }
    if (begin_ != nullptr) driver_.cuEventDestroy(begin_);
    for (const CUstream stream : {own_, releases_}) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
  }
  // After an error, a peer may still signal.
  if (memory_.words != 0 && !is_stopped_) site_.memories.give_back(memory_);
  driver_.cuDevicePrimaryCtxRelease(site_.device);
}

// ---- calls ----

Result<Enqueued> CudaMesh::enqueue(const StreamProgram& program, const StreamCall& call) {
  XYLEM_CHECK(!bases_.empty() && program.slice_bytes <= scratch_bytes(), program.slice_bytes);
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return failure(Code::cancelled, "the communicator has failed");
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  auto* const caller = static_cast<CUstream>(call.stream);
  XYLEM_TRY(driver_.check(driver_.cuStreamIsCapturing(caller, &capture), "cuStreamIsCapturing"));
  Enqueued place{.stream = call.stream, .is_captured = capture != CU_STREAM_CAPTURE_STATUS_NONE};
  if (!call.holds_stream && !place.is_captured) place.stream = own_;
  if (place.is_captured) {
    was_captured_ = true;
    XYLEM_TRY(give(program, call, place));
    XYLEM_TRY(flush(static_cast<CUstream>(place.stream)));
    return place;
  }
  place.number = ++issued_;
  Status given = give(program, call, place);
  if (Status ended = note_end(static_cast<CUstream>(place.stream)); !ended) {
    // A stream that takes nothing has got nothing: an earlier call is the last one.
    --issued_;
    if (given) given = std::move(ended);
  }
  XYLEM_TRY(std::move(given));
  return place;
}

/// Gives a call to its stream, all rounds, except the last memory operations.
Status CudaMesh::give(const StreamProgram& program, const StreamCall& call, const Enqueued& place) {
  auto* const stream = static_cast<CUstream>(place.stream);
  operations_.clear();
  XYLEM_TRY(follow_earlier(stream, place, call));
  for (std::uint64_t round = 0; round < program.rounds; ++round) {
    XYLEM_TRY(run_round(stream, program, call, round));
  }
  return {};
}

/// Lets the stream wait for the last call of this mesh, which uses the same scratch, and a stream
/// of the mesh's own for that of the caller. A capture cannot wait for what is not captured: the
/// order of its launches is that of the streams in which they are launched.
Status CudaMesh::follow_earlier(CUstream stream, const Enqueued& place, const StreamCall& call) {
  if (place.is_captured) return {};
  if (last_ != nullptr && last_ != stream) {
    XYLEM_TRY(
        driver_.check(driver_.cuStreamWaitEvent(stream, end_of(issued_ - 1), CU_EVENT_WAIT_DEFAULT),
                      "cuStreamWaitEvent"));
  }
  if (place.stream == call.stream) return {};
  XYLEM_TRY(driver_.check(driver_.cuEventRecord(begin_, static_cast<CUstream>(call.stream)),
                          "cuEventRecord"));
  return driver_.check(driver_.cuStreamWaitEvent(stream, begin_, CU_EVENT_WAIT_DEFAULT),
                       "cuStreamWaitEvent");
}

Status CudaMesh::note_end(CUstream stream) {
  if (operations_.size() == kMostOperations) XYLEM_TRY(flush(stream));
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operation.writeValue.address = memory_.done_on_device;
  operation.writeValue.value64 = issued_;
  operations_.push_back(operation);
  XYLEM_TRY(flush(stream));
  last_ = stream;
  return driver_.check(driver_.cuEventRecord(end_of(issued_), stream), "cuEventRecord");
}

Result<bool> CudaMesh::block(void* stream, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number + kKnownCalls <= issued_) return false;
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  XYLEM_TRY(driver_.check(driver_.cuStreamWaitEvent(static_cast<CUstream>(stream), end_of(number),
                                                    CU_EVENT_WAIT_DEFAULT),
                          "cuStreamWaitEvent"));
  return true;
}

Status CudaMesh::run_round(CUstream stream,
                           const StreamProgram& program,
                           const StreamCall& call,
                           std::uint64_t round) {
  for (const StreamProgram::Step& step : program.steps) {
    switch (step.kind) {
      case Kind::signal:
        XYLEM_TRY(add_write(stream, flag(step.peer, rank_, step.channel), 1));
        break;
      case Kind::wait: {
        const CUdeviceptr word = flag(rank_, step.peer, step.channel);
        XYLEM_TRY(add_wait(stream, word));
        XYLEM_TRY(add_write(stream, word, 0));
        break;
      }
      case Kind::copy:
      case Kind::reduce: XYLEM_TRY(run_local(stream, program, step, call, round)); break;
    }
  }
  return {};
}

/// Copies are kernels, too, since they read the stop word.
Status CudaMesh::run_local(CUstream stream,
                           const StreamProgram& program,
                           const StreamProgram::Step& step,
                           const StreamCall& call,
                           std::uint64_t round) {
  const std::uint64_t bytes = program.bytes_in(step, round);
  if (bytes == 0) return {};
  XYLEM_TRY(flush(stream));
  std::byte* const target = place_of(program, step.target, call, round);
  const auto sources = program.sources_of(step);
  if (step.is_scaled) {
    ScaleArguments arguments{target, place_of(program, sources[0], call, round),
                             bytes / program.element_bytes, call.factor};
    arguments.stop = reinterpret_cast<const std::uint32_t*>(pointer(stop_word()));
    return driver_.check(site_.kernels->launch(stream, program.scale, bytes, arguments),
                         "cuLaunchKernel");
  }
  const bool is_copy = step.kind == Kind::copy;
  ReduceArguments arguments;
  arguments.stop = reinterpret_cast<const std::uint32_t*>(pointer(stop_word()));
  arguments.target = target;
  arguments.count = is_copy ? bytes : bytes / program.element_bytes;
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.divisor = is_copy ? 1 : program.divisor;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    arguments.sources[s] = place_of(program, sources[s], call, round);
  }
  if (is_copy && target == arguments.sources[0]) return {};  // Of a call in place.
  return driver_.check(
      site_.kernels->launch(stream, is_copy ? program.copy : program.reduce, bytes, arguments),
      "cuLaunchKernel");
}

std::byte* CudaMesh::place_of(const StreamProgram& program,
                              const StreamProgram::Operand& operand,
                              const StreamCall& call,
                              std::uint64_t round) const noexcept {
  const std::uint64_t offset = program.offset_in(operand, round);
  switch (operand.buffer) {
    // Nothing is written to the input: a target is never there.
    case StreamProgram::Buffer::input: return const_cast<std::byte*>(call.input) + offset;
    case StreamProgram::Buffer::output: return call.output + offset;
    case StreamProgram::Buffer::scratch: break;
  }
  return pointer(bases_[operand.rank] + kWords + offset);
}

// ---- flags ----

CUdeviceptr CudaMesh::flag(std::uint32_t at,
                           std::uint32_t from,
                           std::uint32_t channel) const noexcept {
  return bases_[at] + kFirstFlag + (channel * kMostMeshRanks + from) * sizeof(std::uint32_t);
}

/// What the stream was given before is visible to peers before this is.
Status CudaMesh::add_write(CUstream stream, CUdeviceptr word, std::uint32_t value) {
  if (operations_.size() == kMostOperations) XYLEM_TRY(flush(stream));
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  operations_.push_back(operation);
  return {};
}

Status CudaMesh::add_wait(CUstream stream, CUdeviceptr word) {
  if (operations_.size() == kMostOperations) XYLEM_TRY(flush(stream));
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = word;
  operation.waitValue.value = 1;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  operations_.push_back(operation);
  return {};
}

Status CudaMesh::flush(CUstream stream) {
  if (operations_.empty()) return {};
  const CUresult result = driver_.cuStreamBatchMemOp(
      stream, static_cast<unsigned>(operations_.size()), operations_.data(), 0);
  operations_.clear();
  return driver_.check(result, "cuStreamBatchMemOp");
}

// ---- the end after an error ----

void CudaMesh::stop() noexcept { is_stopped_ = true; }

bool CudaMesh::is_drained() const noexcept {
  if (memory_.done == nullptr) return true;
  const std::uint64_t issued = issued_;
  if (std::atomic_ref(*memory_.done).load(std::memory_order_acquire) >= issued) return true;
  // After a fault of the device nothing is written any more.
  const CurrentContext current(driver_, context_);
  const CUresult state = driver_.cuStreamQuery(releases_);
  return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
}

bool CudaMesh::release() noexcept {
  if (is_drained()) {
    if (!was_captured_) return true;
    if (!is_stopped_) return false;
  }
  const CurrentContext current(driver_, context_);
  if (bases_.empty() || driver_.cuStreamQuery(releases_) != CUDA_SUCCESS) return false;
  std::array<CUstreamBatchMemOpParams, 1 + kMeshChannels * kMostMeshRanks> writes{};
  std::size_t count = 0;
  const auto set = [&](CUdeviceptr word) {
    writes[count].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    writes[count].writeValue.address = word;
    writes[count++].writeValue.value = 1;
  };
  set(stop_word());
  for (std::uint32_t channel = 0; channel < kMeshChannels; ++channel) {
    for (std::uint32_t peer = 0; peer < bases_.size(); ++peer) set(flag(rank_, peer, channel));
  }
  driver_.cuStreamBatchMemOp(releases_, static_cast<unsigned>(count), writes.data(), 0);
  return false;
}

}  // namespace xylem::execution::cuda
