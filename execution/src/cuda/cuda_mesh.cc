// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_mesh.h"

#include "cuda/gates.h"
#include "xylem/base/check.h"
#include "xylem/base/clock.h"
#include "xylem/base/keep.h"
#include "xylem/transport/transport.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

namespace xylem::execution::cuda {
namespace {

using Kind = StreamProgram::Kind;

// Of the memory of flags. The stop word has a cache line of its own.
constexpr std::uint64_t kFirstFlag = 64;
constexpr std::uint64_t kNonce = 2048;
static_assert(kFirstFlag + kMeshChannels * kMostMeshRanks * sizeof(std::uint32_t) <= kNonce);
static_assert(kNonce + sizeof(MeshMember::nonce) <= CudaMesh::kEnded);
static_assert(CudaMesh::kTold + kMostMeshRanks * sizeof(PeerCall) <= MeshMemories::kFlagBytes);
static_assert(kMostSignals + 1 == kMostMeshRanks);
constexpr std::size_t kMostOperations = 128;  ///< Of one batch; the driver takes 256.
constexpr std::uint64_t kMeasuredBytes = std::uint64_t{4} << 20;  ///< Of one copy.
constexpr int kMeasuredCopies = 4;

CUstreamBatchMemOpParams write_of(CUdeviceptr word, std::uint32_t value) noexcept {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  return operation;
}

}  // namespace

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
  shared_ = std::make_unique<SharedMemory>(driver_, site_.kernels, context_, site_.device,
                                           [](CUresult, std::string_view) {});
  return prepare_memory();
}

Status CudaMesh::make_streams() {
  int least = 0, greatest = 0;
  XYLEM_TRY(driver_.check(driver_.cuCtxGetStreamPriorityRange(&least, &greatest),
                          "cuCtxGetStreamPriorityRange"));
  // Between the priority of most streams of the user and that of the streams that let others go
  // on. Greater priorities are smaller numbers.
  const int between = std::min(greatest + 1, least);
  XYLEM_TRY(
      driver_.check(driver_.cuStreamCreateWithPriority(&own_, CU_STREAM_NON_BLOCKING, between),
                    "cuStreamCreateWithPriority"));
  XYLEM_TRY(driver_.check(
      driver_.cuStreamCreateWithPriority(&releases_, CU_STREAM_NON_BLOCKING, greatest),
      "cuStreamCreateWithPriority"));
  for (CUevent& end : ends_) {
    XYLEM_TRY(driver_.check(driver_.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  }
  return driver_.check(driver_.cuEventCreate(&begin_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

/// Clears the flags, and names the memory for peers.
Status CudaMesh::prepare_memory() {
  *memory_.done = 0;
  if (getrandom(member_.nonce.data(), member_.nonce.size(), 0) !=
      static_cast<ssize_t>(member_.nonce.size())) {
    return failure(Code::internal, "the system gives no random bytes");
  }
  XYLEM_TRY(driver_.check(
      driver_.cuMemsetD32Async(memory_.flags, 0, MeshMemories::kFlagBytes / sizeof(std::uint32_t),
                               releases_),
      "cuMemsetD32Async"));
  XYLEM_TRY(
      driver_.check(driver_.cuMemcpyAsync(memory_.flags + kNonce, address(member_.nonce.data()),
                                          member_.nonce.size(), releases_),
                    "cuMemcpyAsync"));
  XYLEM_TRY(driver_.check(driver_.cuStreamSynchronize(releases_), "cuStreamSynchronize"));
  const transport::ConstRegion flags{.data = pointer(memory_.flags),
                                     .bytes = MeshMemories::kFlagBytes};
  const transport::ConstRegion scratch{.data = pointer(memory_.scratch), .bytes = scratch_bytes()};
  if (!shared_->share(flags, member_.flags) || !shared_->share(scratch, member_.scratch)) {
    return failure(Code::unsupported, "the device cannot share its memory");
  }
  CUuuid device{};
  XYLEM_TRY(driver_.check(driver_.cuDeviceGetUuid(&device, site_.device), "cuDeviceGetUuid"));
  member_.scratch_bytes = scratch_bytes();
  static_assert(sizeof device == sizeof member_.device);
  std::memcpy(member_.device.data(), &device, sizeof device);
  return {};
}

Status CudaMesh::join(std::span<const MeshMember> members) {
  if (members.size() > kMostMeshRanks) {
    return failure(Code::unsupported, fmt::format("{} ranks; at most {} can be in a mesh",
                                                  members.size(), kMostMeshRanks));
  }
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  peers_.resize(members.size());
  is_direct_ = std::ranges::all_of(members, [&](const MeshMember& member) {
    return member.scratch.process == member_.scratch.process;
  });
  is_one_device_ = std::ranges::all_of(
      members, [&](const MeshMember& member) { return member.device == member_.device; });
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    Status opened = open(members[rank], peers_[rank]);
    if (opened) opened = check_nonce(peers_[rank]);
    if (!opened) {
      return failure(opened.code(), fmt::format("rank {}: {}", rank, opened.message()));
    }
  }
  return {};
}

Status CudaMesh::open(const MeshMember& member, Peer& peer) {
  if (member.scratch.process != member_.scratch.process && member.device == member_.device) {
    return failure(Code::unsupported, "it has the same GPU in another process");
  }
  if (member.scratch_bytes != scratch_bytes()) {
    return failure(Code::unsupported, fmt::format("it has {} bytes of scratch, and this rank {}",
                                                  member.scratch_bytes, scratch_bytes()));
  }
  peer.member = member;
  const auto* const flags = shared_->open(member.flags, MeshMemories::kFlagBytes, {});
  if (flags != nullptr) peer.flags = address(flags);
  const auto* const scratch =
      flags == nullptr ? nullptr : shared_->open(member.scratch, scratch_bytes(), {});
  if (scratch == nullptr) {
    return failure(Code::unsupported, "this GPU does not reach the memory of its GPU");
  }
  peer.scratch = address(scratch);
  return {};
}

/// Whether the memory that was opened is that of the peer.
Status CudaMesh::check_nonce(const Peer& peer) const {
  decltype(peer.member.nonce) found{};
  XYLEM_TRY(driver_.check(
      driver_.cuMemcpyAsync(address(found.data()), peer.flags + kNonce, found.size(), releases_),
      "cuMemcpyAsync"));
  XYLEM_TRY(driver_.check(driver_.cuStreamSynchronize(releases_), "cuStreamSynchronize"));
  if (found == peer.member.nonce) return {};
  return failure(Code::unsupported, "its memory is not on this host");
}

Result<double> CudaMesh::measure() {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  const std::uint64_t bytes = std::min(scratch_bytes() / 2, kMeasuredBytes);
  // Halves, since the rank before this one reads the first half meanwhile.
  const CUdeviceptr target = memory_.scratch + scratch_bytes() / 2;
  const CUdeviceptr source = peers_[(rank_ + 1) % peers_.size()].scratch;
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
  // The user launches none any more, so no stream will wait because of one (on_ended()).
  const bool has_graphs = has_graphs_.exchange(false);
  on_ended();
  if (!is_drained() || has_graphs) {
    // A stream or a graph of the user may still use both.
    keep_until_exit(site_.kernels);
    keep_until_exit(std::shared_ptr<const SharedMemory>(std::move(shared_)));
    return;
  }
  if (shared_ != nullptr) site_.memories.keep(std::move(shared_));
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
  // After an error, a peer may still read and write the memory.
  if (memory_.scratch != 0 && !is_stopped_) {
    site_.memories.give_back(memory_);
    for (const auto* const copies : {&input_copies_, &output_copies_}) {
      for (const auto& copy : *copies) site_.memories.give_back(copy);
    }
  }
  driver_.cuDevicePrimaryCtxRelease(site_.device);
}

// ---- calls ----

Result<Enqueued> CudaMesh::enqueue(const StreamProgram& program, const StreamCall& call) {
  XYLEM_CHECK(
      !peers_.empty() && (program.is_direct ? is_direct_ : program.slice_bytes <= scratch_bytes()),
      program.slice_bytes);
  if (is_stopped_) return failure(Code::cancelled, "the communicator has failed");
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  XYLEM_TRY(driver_.check(driver_.cuStreamIsCapturing(static_cast<CUstream>(call.stream), &capture),
                          "cuStreamIsCapturing"));
  Enqueued place;
  place.is_captured = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  place.is_direct = program.is_direct && peers_.size() > 1;
  place.stream = call.holds_stream || place.is_captured ? call.stream : own_;
  is_partly_given_ = false;
  StreamCall reached = call;
  if (program.is_direct) {
    XYLEM_TRY(reached, within_reach(program, call));
  }
  const bool had_graphs = has_graphs_;
  if (place.is_captured) {
    has_graphs_ = true;
  } else {
    place.number = ++issued_;
  }
  count();
  place.broken = give(program, call, reached, place);
  if (place.broken) return place;
  if (!is_partly_given_) {
    if (place.is_captured) {
      has_graphs_ = had_graphs;
    } else {
      --issued_;
    }
    on_ended();  // The stream waits for nothing of this call.
    return place.broken;
  }
  // So that it is known when the stream has done what it got.
  if (!place.is_captured) (void)note_end(place);
  return place;
}

/// Gives a call to its stream, all rounds. `reached` is the call with buffers that peers reach.
Status CudaMesh::give(const StreamProgram& program,
                      const StreamCall& call,
                      const StreamCall& reached,
                      const Enqueued& place) {
  auto* const stream = static_cast<CUstream>(place.stream);
  operations_.clear();
  exchange_.bytes = 0;
  signals_.count = 0;
  XYLEM_TRY(follow_earlier(call, place));
  if (reached.input != call.input) {
    XYLEM_TRY(given(site_.kernels->copy(stream, const_cast<std::byte*>(reached.input), call.input,
                                        program.input_bytes),
                    "cuLaunchKernel"));
  }
  for (std::uint64_t round = 0; round < program.rounds; ++round) {
    XYLEM_TRY(run_round(stream, program, reached, round));
  }
  XYLEM_TRY(give_pending(stream, program));
  if (reached.output != call.output) {
    XYLEM_TRY(give_operations(stream));
    XYLEM_TRY(given(site_.kernels->copy(stream, call.output, reached.output, program.output_bytes),
                    "cuLaunchKernel"));
  }
  return place.is_captured ? give_operations(stream) : note_end(place);
}

/// Lets the stream wait for the last call of this mesh, which uses the same scratch, and a stream
/// of the mesh's own for that of the caller. A capture cannot wait for what is not captured.
Status CudaMesh::follow_earlier(const StreamCall& call, const Enqueued& place) {
  if (place.is_captured) return {};
  auto* const stream = static_cast<CUstream>(place.stream);
  // Also if it is the same stream: two streams may have the same handle, one after the other, or in
  // different threads (CU_STREAM_PER_THREAD).
  ends_mutex_.assume_unchanging();  // Only who gives a call records an end.
  if (ended_ > 0) {
    XYLEM_TRY(
        driver_.check(driver_.cuStreamWaitEvent(stream, end_of(ended_), CU_EVENT_WAIT_DEFAULT),
                      "cuStreamWaitEvent"));
  }
  if (place.stream == call.stream) return {};
  XYLEM_TRY(driver_.check(driver_.cuEventRecord(begin_, static_cast<CUstream>(call.stream)),
                          "cuEventRecord"));
  return driver_.check(driver_.cuStreamWaitEvent(stream, begin_, CU_EVENT_WAIT_DEFAULT),
                       "cuStreamWaitEvent");
}

Status CudaMesh::note_end(const Enqueued& place) {
  auto* const stream = static_cast<CUstream>(place.stream);
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operation.writeValue.address = memory_.done_on_device;
  operation.writeValue.value64 = place.number;
  XYLEM_TRY(add(stream, operation));
  XYLEM_TRY(give_operations(stream));
  const Lock lock(ends_mutex_);
  XYLEM_TRY(given(driver_.cuEventRecord(end_of(place.number), stream), "cuEventRecord"));
  ended_ = place.number;
  return {};
}

Result<bool> CudaMesh::block(void* stream, std::uint64_t number) {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  const Lock lock(ends_mutex_);
  if (number > ended_ || number + kKnownCalls <= ended_) return false;
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
      case Kind::signal: XYLEM_TRY(add_signal(stream, program, step, call)); break;
      case Kind::wait:
        XYLEM_TRY(give_pending(stream, program));
        XYLEM_TRY(add_wait(stream, flag(rank_, step.peer, step.channel)));
        break;
      case Kind::copy:
      case Kind::reduce:
        XYLEM_TRY(give_pending(stream, program));
        XYLEM_TRY(program.is_direct ? begin_exchange(stream, program, step, call)
                                    : run_local(stream, program, step, call, round));
        break;
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
  XYLEM_TRY(give_operations(stream));
  std::byte* const target = place_of(program, step.target, call, round);
  const auto sources = program.sources_of(step);
  const std::uint64_t count = bytes / program.element_bytes;
  if (step.is_scaled) {
    ScaleArguments arguments{target, place_of(program, sources[0], call, round), count,
                             call.factor};
    arguments.stop = stop_word();
    return given(site_.kernels->launch(stream, program.scale, bytes, arguments), "cuLaunchKernel");
  }
  const bool is_copy = step.kind == Kind::copy;
  ReduceArguments arguments;
  arguments.stop = stop_word();
  arguments.target = target;
  arguments.count = count;
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.divisor = is_copy ? 1 : program.divisor;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    arguments.sources[s] = place_of(program, sources[s], call, round);
  }
  if (is_copy && target == arguments.sources[0]) return {};  // Of a call in place.
  return given(
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
  return pointer(peers_[operand.rank].scratch + offset);
}

Status CudaMesh::given(CUresult result, std::string_view function) {
  is_partly_given_ |= result == CUDA_SUCCESS;
  return driver_.check(result, function);
}

// ---- flags ----

CUdeviceptr CudaMesh::flag(std::uint32_t at,
                           std::uint32_t from,
                           std::uint32_t channel) const noexcept {
  return peers_[at].flags + kFirstFlag + (channel * kMostMeshRanks + from) * sizeof(std::uint32_t);
}

std::uint32_t* CudaMesh::flag_pointer(std::uint32_t at,
                                      std::uint32_t from,
                                      std::uint32_t channel) const noexcept {
  return reinterpret_cast<std::uint32_t*>(pointer(flag(at, from, channel)));
}

const std::uint32_t* CudaMesh::stop_word() const noexcept {
  return reinterpret_cast<const std::uint32_t*>(pointer(memory_.flags));
}

/// An exchange sets the flags that follow it, which spares a kernel.
Status CudaMesh::add_signal(CUstream stream,
                            const StreamProgram& program,
                            const StreamProgram::Step& step,
                            const StreamCall& call) {
  if (add_to_exchange(step)) return {};
  XYLEM_TRY(give_exchange(stream));
  XYLEM_TRY(give_operations(stream));
  const std::uint32_t i = signals_.count++;
  signals_.flags[i] = flag_pointer(step.peer, rank_, step.channel);
  // The first signal of a call tells the peer where this rank's buffers are. So does that of a call
  // that is not direct: if the peer's call is, it must not take what an earlier call has told.
  const bool tells = is_direct_ && step.channel == 0;
  signals_.told[i] = tells ? told_at(step.peer) + rank_ : nullptr;
  if (tells) signals_.own = {address(call.input), address(call.output), program.call};
  return signals_.count == kMostSignals ? give_signals(stream, program) : Status();
}

/// What was collected and not given yet, but for memory operations.
Status CudaMesh::give_pending(CUstream stream, const StreamProgram& program) {
  XYLEM_TRY(give_exchange(stream));
  return give_signals(stream, program);
}

Status CudaMesh::give_signals(CUstream stream, const StreamProgram& program) {
  if (signals_.count == 0) return {};
  signals_.stop = stop_word();
  const CUresult result = site_.kernels->launch(stream, program.signal, signals_);
  signals_.count = 0;
  return given(result, "cuLaunchKernel");
}

Status CudaMesh::add(CUstream stream, const CUstreamBatchMemOpParams& operation) {
  if (operations_.size() == kMostOperations) XYLEM_TRY(give_operations(stream));
  operations_.push_back(operation);
  return {};
}

/// Waits for a flag, and clears it.
Status CudaMesh::add_wait(CUstream stream, CUdeviceptr flag) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = flag;
  operation.waitValue.value = 1;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  XYLEM_TRY(add(stream, operation));
  return add(stream, write_of(flag, 0));
}

Status CudaMesh::give_operations(CUstream stream) {
  if (operations_.empty()) return {};
  const CUresult result = driver_.cuStreamBatchMemOp(
      stream, static_cast<unsigned>(operations_.size()), operations_.data(), 0);
  operations_.clear();
  return given(result, "cuStreamBatchMemOp");
}

// ---- who waits ----

/// Memory is not closed, and no more is taken, while streams wait (Gates::are_streams_waiting()).
void CudaMesh::count() noexcept {
  const Lock lock(count_mutex_);
  if (!std::exchange(is_counted_, true)) Gates::add_other();
}

/// A call that is given meanwhile is counted again, or is seen here.
void CudaMesh::on_ended() noexcept {
  const Lock lock(count_mutex_);
  if (!is_counted_ || has_graphs_ || !is_drained()) return;
  is_counted_ = false;
  Gates::remove_other();
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
  const bool is_done = is_drained();
  if (is_done) on_ended();
  if (!is_stopped_ || (is_done && !has_graphs_)) return is_done;
  const CurrentContext current(driver_, context_);
  if (driver_.cuStreamQuery(releases_) != CUDA_SUCCESS) return is_done;
  std::array<CUstreamBatchMemOpParams, 1 + kMeshChannels * kMostMeshRanks> writes{};
  std::size_t count = 0;
  writes[count++] = write_of(memory_.flags, 1);
  for (std::uint32_t channel = 0; channel < kMeshChannels; ++channel) {
    for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
      writes[count++] = write_of(flag(rank_, peer, channel), 1);
    }
  }
  driver_.cuStreamBatchMemOp(releases_, static_cast<unsigned>(count), writes.data(), 0);
  return is_done;
}

}  // namespace xylem::execution::cuda
