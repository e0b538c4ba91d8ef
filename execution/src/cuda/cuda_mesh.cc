// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_mesh.h"

#include "xylem/base/check.h"
#include "xylem/base/clock.h"
#include "xylem/base/keep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

namespace xylem::execution::cuda {
namespace {

using Kind = StreamProgram::Kind;

constexpr std::uint64_t kMeasuredBytes = std::uint64_t{4} << 20;  ///< Size of one copy.
constexpr int kMeasuredCopies = 4;

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
  XYLEM_TRY(make_streams());
  XYLEM_TRY(events_.create());
  XYLEM_TRY(memory_, site_.memories.take());
  *memory_.done = 0;
  return peers_.set_up(
      memory_, scratch_bytes(), site_.device, releases_,
      std::make_unique<SharedMemory>(driver_, site_.kernels, context_, site_.device,
                                     [](CUresult, std::string_view) {}));
}

Status CudaMesh::make_streams() {
  int least = 0, greatest = 0;
  XYLEM_TRY(driver_.check(driver_.cuCtxGetStreamPriorityRange(&least, &greatest),
                          "cuCtxGetStreamPriorityRange"));
  // The priority of `own_` lies between that of most streams of the application and that of streams
  // that unblock others. Greater priorities are smaller numbers.
  const int between = std::min(greatest + 1, least);
  XYLEM_TRY(
      driver_.check(driver_.cuStreamCreateWithPriority(&own_, CU_STREAM_NON_BLOCKING, between),
                    "cuStreamCreateWithPriority"));
  return driver_.check(
      driver_.cuStreamCreateWithPriority(&releases_, CU_STREAM_NON_BLOCKING, greatest),
      "cuStreamCreateWithPriority");
}

Status CudaMesh::join(std::span<const MeshMember> members) {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  return peers_.open(members, releases_);
}

Result<double> CudaMesh::measure() {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  const std::uint64_t bytes = std::min(scratch_bytes() / 2, kMeasuredBytes);
  // Copies to the second half, since the previous rank reads the first half at the same time.
  const CUdeviceptr target = memory_.scratch + scratch_bytes() / 2;
  const CUdeviceptr source = peers_.scratch((rank_ + 1) % peers_.count());
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
  site_.waiting.forget(memory_.done);
  // The application launches no graph of this mesh after its destruction. So no stream begins to
  // wait because of a graph, and on_ended() can ignore graphs.
  const bool has_graphs = has_graphs_.exchange(false);
  on_ended();
  if (!is_drained() || has_graphs) {
    // A stream or a graph of the application may still use the kernels and the opened memory.
    keep_until_exit(site_.kernels);
    keep_until_exit(std::shared_ptr<const SharedMemory>(peers_.release()));
    return;
  }
  if (auto opened = peers_.release()) site_.memories.keep(std::move(opened));
  {
    const CurrentContext current(driver_, context_);
    events_.destroy();
    for (const CUstream stream : {own_, releases_}) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
  }
  // After an error, a peer may still read and write the memory, so it is not reused.
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
  XYLEM_CHECK(peers_.count() > 0 &&
                  (program.is_direct ? is_direct() : program.slice_bytes <= scratch_bytes()),
              program.slice_bytes);
  if (is_stopped_) return failure(Code::cancelled, "the communicator has failed");
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  XYLEM_TRY(driver_.check(driver_.cuStreamIsCapturing(static_cast<CUstream>(call.stream), &capture),
                          "cuStreamIsCapturing"));
  Enqueued place;
  place.is_captured = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  place.is_direct = program.is_direct && peers_.count() > 1;
  place.stream = call.holds_stream || place.is_captured ? call.stream : own_;
  batch_.begin(static_cast<CUstream>(place.stream), stop_word(), program.signal,
               peers_.can_be_written() ? Signals::by_writes : Signals::by_kernels);
  StreamCall reached = call;
  if (program.is_direct) {
    XYLEM_TRY(reached, within_reach(program, call));
  }
  Gates::ByWrite end;
  if (!place.is_captured) {
    XYLEM_TRY(end, begin_call(place));
  }
  const bool had_graphs = has_graphs_;
  if (place.is_captured) {
    has_graphs_ = true;
  } else {
    place.number = ++issued_;
  }
  wait_.begin();
  place.broken = enqueue_all(program, call, reached, place, end);
  if (place.broken) {
    place.end = end.gate;
    return place;
  }
  if (!batch_.has_enqueued()) {
    if (place.is_captured) {
      has_graphs_ = had_graphs;
    } else {
      --issued_;
      site_.waiting.forget(memory_.done);
      site_.gates.cancel(end);
    }
    on_ended();  // Nothing was enqueued, so no stream waits for this call.
    return place.broken;
  }
  // Only a part of the call was enqueued. Recording its end lets is_drained() notice when the
  // stream has completed this part. The gate is not used again: its write may have been enqueued.
  if (!place.is_captured) (void)note_end(place, nullptr);
  return place;
}

/// Makes the gate that opens at the end of a call. Fails with `busy` if too many streams wait, or
/// too many calls.
Result<Gates::ByWrite> CudaMesh::begin_call(const Enqueued& place) {
  XYLEM_TRY(driver_.check(driver_.cuStreamGetId(static_cast<CUstream>(place.stream), &stream_id_),
                          "cuStreamGetId"));
  auto end = site_.gates.by_write();
  if (!end) return failure(Code::busy, std::string(end.status().message()));
  if (site_.waiting.add(stream_id_, memory_.done, issued_ + 1)) return end;
  site_.gates.cancel(*end);
  return failure(
      Code::busy,
      fmt::format("{} streams of CUDA device {} wait in calls of bound communicators. No "
                  "more may wait, so that hardware queues are left for other work; set "
                  "CUDA_DEVICE_MAX_CONNECTIONS=32 to let more wait",
                  site_.waiting.most(), site_.device));
}

/// Enqueues all rounds of a call. `reached` is the same call, in which memory that peers can access
/// has replaced the buffers that they cannot access (within_reach()).
Status CudaMesh::enqueue_all(const StreamProgram& program,
                             const StreamCall& call,
                             const StreamCall& reached,
                             const Enqueued& place,
                             const Gates::ByWrite& end) {
  // The previous call uses the same scratch, so this call waits for it. A captured call must not
  // wait for work outside its capture.
  if (!place.is_captured) {
    XYLEM_TRY(events_.follow(static_cast<CUstream>(place.stream), stream_id_,
                             static_cast<CUstream>(call.stream)));
  }
  if (reached.input != call.input) {
    XYLEM_TRY(batch_.copy(const_cast<std::byte*>(reached.input), call.input, program.input_bytes));
  }
  for (std::uint64_t round = 0; round < program.rounds; ++round) {
    XYLEM_TRY(enqueue_round(program, reached, round));
  }
  if (reached.output != call.output) {
    XYLEM_TRY(batch_.copy(call.output, reached.output, program.output_bytes));
  }
  return place.is_captured ? batch_.flush() : note_end(place, &end);
}

/// Enqueues the end of a call, which opens the gate `end`, if there is one.
Status CudaMesh::note_end(const Enqueued& place, const Gates::ByWrite* end) {
  XYLEM_TRY(batch_.add_write(memory_.done_on_device, place.number));
  if (end != nullptr) XYLEM_TRY(batch_.add_write(end->word, end->value));
  XYLEM_TRY(batch_.flush());
  return events_.record(static_cast<CUstream>(place.stream), place.number);
}

Result<bool> CudaMesh::block(void* stream, std::uint64_t number) {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  return events_.wait_for(static_cast<CUstream>(stream), number);
}

Status CudaMesh::enqueue_round(const StreamProgram& program,
                               const StreamCall& call,
                               std::uint64_t round) {
  for (const StreamProgram::Step& step : program.steps) {
    switch (step.kind) {
      case Kind::signal: XYLEM_TRY(enqueue_signal(program, step, call)); break;
      case Kind::wait: XYLEM_TRY(batch_.add_wait(peers_.own_flag(step.peer, step.channel))); break;
      case Kind::copy:
      case Kind::reduce:
        XYLEM_TRY(program.is_direct ? enqueue_exchange(program, step, call)
                                    : enqueue_local(program, step, call, round));
        break;
    }
  }
  return {};
}

Status CudaMesh::enqueue_signal(const StreamProgram& program,
                                const StreamProgram::Step& step,
                                const StreamCall& call) {
  // The first signal of a call publishes the addresses of this rank's buffers to the peer, even if
  // the call is not direct. Otherwise, if the peer made a direct call that does not match, it would
  // use the addresses of an earlier call.
  const bool tells = is_direct() && step.channel == 0;
  return batch_.add_signal(peers_.flag_at(step.peer, step.channel),
                           tells ? peers_.calls_written_to(step.peer) + rank_ : nullptr,
                           {address(call.input), address(call.output), program.call});
}

/// Enqueues a copy or a reduction of a call that is not direct. Copies are kernels, too, so that
/// they obey the stop word.
Status CudaMesh::enqueue_local(const StreamProgram& program,
                               const StreamProgram::Step& step,
                               const StreamCall& call,
                               std::uint64_t round) {
  const std::uint64_t bytes = program.bytes_in(step, round);
  if (bytes == 0) return {};
  std::byte* const target = place_of(program, step.target, call, round);
  const auto sources = program.sources_of(step);
  const std::uint64_t count = bytes / program.element_bytes;
  if (step.is_scaled) {
    ScaleArguments arguments{target, place_of(program, sources[0], call, round), count,
                             call.factor};
    return batch_.launch(program.scale, bytes, arguments);
  }
  const bool is_copy = step.kind == Kind::copy;
  ReduceArguments arguments;
  arguments.target = target;
  arguments.count = count;
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.divisor = is_copy ? 1 : program.divisor;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    arguments.sources[s] = place_of(program, sources[s], call, round);
  }
  if (is_copy && target == arguments.sources[0]) return {};  // In place: nothing to copy.
  return batch_.launch(is_copy ? program.copy : program.reduce, bytes, arguments);
}

std::byte* CudaMesh::place_of(const StreamProgram& program,
                              const StreamProgram::Operand& operand,
                              const StreamCall& call,
                              std::uint64_t round) const noexcept {
  const std::uint64_t offset = program.offset_in(operand, round);
  switch (operand.buffer) {
    // The cast removes const, but the input is never written, since it is never a target.
    case StreamProgram::Buffer::input: return const_cast<std::byte*>(call.input) + offset;
    case StreamProgram::Buffer::output: return call.output + offset;
    case StreamProgram::Buffer::scratch: break;
  }
  return pointer(peers_.scratch(operand.rank) + offset);
}

const std::uint32_t* CudaMesh::stop_word() const noexcept {
  return reinterpret_cast<const std::uint32_t*>(pointer(peers_.stop_word()));
}

/// Another thread may enqueue a call at the same time. If its wait_.begin() comes before this
/// check, is_drained() notices the call. Otherwise, wait_.begin() begins the wait again.
void CudaMesh::on_ended() noexcept {
  wait_.end_if([this] { return !has_graphs_ && is_drained(); });
}

// ---- the end after an error ----

void CudaMesh::stop() noexcept { is_stopped_ = true; }

bool CudaMesh::is_drained() const noexcept {
  if (memory_.done == nullptr) return true;
  const std::uint64_t issued = issued_;
  if (std::atomic_ref(*memory_.done).load(std::memory_order_acquire) >= issued) return true;
  // After a fault of the device, `done` is not written. Then the query of the stream returns an
  // error.
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
  released_.begin(releases_, nullptr, 0, Signals::by_writes);
  (void)released_.add_set(peers_.stop_word());
  for (std::uint32_t channel = 0; channel < kMeshChannels; ++channel) {
    for (std::uint32_t peer = 0; peer < peers_.count(); ++peer) {
      (void)released_.add_set(peers_.own_flag(peer, channel));
    }
  }
  (void)released_.flush();
  return is_done;
}

}  // namespace xylem::execution::cuda
