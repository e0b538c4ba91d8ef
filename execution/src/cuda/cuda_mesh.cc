// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_mesh.h"

#include "xylem/base/check.h"
#include "xylem/base/keep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

namespace xylem::execution::cuda {
namespace {

using Kind = StreamProgram::Kind;

/// A call is one kernel (Signals::fused) if each block of a kernel that waits computes at most this
/// many bytes: 256 KiB in all with 32 blocks. With more bytes, these few blocks would need longer
/// than many that do not wait. An estimate: no machine with several GPUs was available.
constexpr std::uint64_t kMostBytesPerBlock = std::uint64_t{8} << 10;

/// How many bytes of a buffer of this rank are used by others, from its beginning.
std::uint64_t used_bytes(const StreamProgram& program,
                         StreamProgram::Chunk StreamProgram::Uses::*of) {
  std::uint64_t used = 0;
  for (const auto& uses : program.uses) {
    if ((uses.*of).bytes > 0) used = std::max(used, (uses.*of).offset + (uses.*of).bytes);
  }
  return used;
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
  XYLEM_TRY(make_streams());
  XYLEM_TRY(events_.create());
  XYLEM_TRY(memory_, site_.memories.take());
  memory_.done[0] = memory_.done[1] = 0;
  constexpr std::size_t kMostOpen = (Exports::kMost + 2) * kMostMeshRanks;
  return peers_.set_up(
      memory_, staging_bytes(), site_.device, releases_,
      std::make_unique<SharedMemory>(
          driver_, site_.kernels, context_, site_.device, [](CUresult, std::string_view) {},
          SharedMemory::Limits{.kept_open = 0, .most_open = kMostOpen}));
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

Result<MeshView> CudaMesh::join(std::span<const MeshMember> members) {
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  XYLEM_TRY(const MeshView view, peers_.open(members, releases_));
  constexpr std::uint32_t kEnoughBlocks = 32;
  if (peers_.may_wait_in_kernels() || site_.fuses_on_shared_devices) {
    waiting_blocks_ = site_.kernels->reserve_blocks(kEnoughBlocks);
  }
  batch_.set_up(peers_.words(), peers_.flush(), waiting_blocks_);
  signals_of_large_ = peers_.are_together() ? Signals::by_writes : Signals::by_kernels;
  signals_of_small_ = waiting_blocks_ > 0 ? Signals::fused : signals_of_large_;
  return view;
}

void CudaMesh::start(std::span<const MeshView> views) {
  peers_.start(views);
  exports_.start(peers_.shared(), peers_.are_elsewhere());
}

CudaMesh::~CudaMesh() {
  if (context_ == nullptr) return;
  site_.waiting.forget(memory_.done);
  // The application launches no graph of this mesh after its destruction. So no stream begins to
  // wait because of a graph, and on_ended() can ignore graphs.
  const bool has_graphs = has_graphs_.exchange(false);
  on_ended();
  const bool has_drained = is_drained();
  if (has_drained) site_.kernels->release_blocks(waiting_blocks_);
  if (!has_drained || has_graphs) {
    // A stream or a graph of the application may still use the kernels and the opened memory.
    keep_until_exit(site_.kernels);
    keep_until_exit(std::shared_ptr<const SharedMemory>(peers_.release()));
    return;
  }
  auto opened = peers_.release();
  if (const auto no_stream_waits = NoStreamWaits::try_acquire(); opened && no_stream_waits) {
    const CurrentContext current(driver_, context_);
    opened->close_all(*no_stream_waits);
  } else if (opened) {
    site_.memories.keep(std::move(opened));
  }
  {
    const CurrentContext current(driver_, context_);
    events_.destroy();
    for (const CUstream stream : {own_, releases_}) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
  }
  // After an error, a peer may still read and write the memory, so it is not reused.
  if (memory_.staging != 0 && !is_stopped_) site_.memories.give_back(memory_);
  driver_.cuDevicePrimaryCtxRelease(site_.device);
}

// ---- calls ----

Result<Enqueued> CudaMesh::enqueue(const StreamProgram& program, const StreamCall& call) {
  const bool may_copy = may_stage() || program.stages_input;
  XYLEM_CHECK(
      peers_.count() > 0 && (!may_copy || program.slice_bytes <= staging_bytes() / peers_.count()),
      program.slice_bytes);
  if (is_stopped_) return failure(Code::cancelled, "the communicator has failed");
  const CurrentContext current(driver_, context_);
  XYLEM_TRY(driver_.check(current.result(), "cuCtxPushCurrent"));
  XYLEM_TRY(capture_, driver_.capture_of(static_cast<CUstream>(call.stream)));
  Enqueued place;
  place.is_captured = capture_.has_value();
  place.is_shared = peers_.count() > 1;
  place.stream = call.holds_stream || place.is_captured ? call.stream : own_;
  batch_.begin(static_cast<CUstream>(place.stream), program.copy,
               program.bytes <= waiting_blocks_ * kMostBytesPerBlock ? signals_of_small_
                                                                     : signals_of_large_);
  const auto used_input = used_bytes(program, &StreamProgram::Uses::input);
  const Shared input = program.stages_input ? Shared{.data = call.input, .is_staged = true}
                                            : share(call.input, used_input, place);
  const auto used_output = used_bytes(program, &StreamProgram::Uses::output);
  const Enqueuing enqueuing{program, call, input, share(call.output, used_output, place)};
  if (place.is_captured && call.waits_for_peers &&
      (enqueuing.input.is_opening || enqueuing.output.is_opening)) {
    return failure(Code::busy, "peers open the buffers of the call");
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
  place.broken = enqueue_all(enqueuing, place, end);
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

/// How peers use the first `bytes` of a buffer.
CudaMesh::Shared CudaMesh::share(const std::byte* data,
                                 std::uint64_t bytes,
                                 const Enqueued& place) {
  if (bytes == 0 || peers_.are_together()) return {data};
  const std::uint64_t ended = std::atomic_ref(memory_.done[0]).load(std::memory_order_acquire);
  // The number of the call, or if it is captured, of the one before it.
  const std::uint64_t number = issued_ + (place.is_captured ? 0 : 1);
  const auto found = exports_.find(
      data, bytes, {.call = number, .ended = ended, .is_captured = place.is_captured});
  return {data, found.exported, found.exported == nullptr, found.is_opening};
}

/// Enqueues all rounds of a call.
Status CudaMesh::enqueue_all(const Enqueuing& call,
                             const Enqueued& place,
                             const Gates::ByWrite& end) {
  // The previous call uses the same flags and staging memory, so this call waits for it. A captured
  // call must not wait for work outside its capture.
  auto* const stream = static_cast<CUstream>(place.stream);
  XYLEM_TRY(capture_ ? events_.follow_captured(stream, *capture_)
                     : events_.follow(stream, stream_id_, static_cast<CUstream>(call.call.stream)));
  for (std::uint64_t round = 0; round < call.program.rounds; ++round) {
    XYLEM_TRY(stage_in(call, round));
    XYLEM_TRY(enqueue_round(call, round));
    XYLEM_TRY(stage_out(call, round));
  }
  if (!capture_) return note_end(place, &end);
  XYLEM_TRY(batch_.flush());
  return events_.record_captured(stream, *capture_);
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

// ---- rounds ----

Status CudaMesh::enqueue_round(const Enqueuing& call, std::uint64_t round) {
  for (const StreamProgram::Step& step : call.program.steps) {
    const bool is_exchange = step.kind == Kind::copy || step.kind == Kind::reduce;
    if (is_exchange) XYLEM_TRY(add_exchange(call, step, round));
    if (is_exchange || round >= step.rounds) continue;
    XYLEM_TRY(step.kind == Kind::signal ? add_signal(call, step, round)
                                        : batch_.add_wait(step.peer, step.channel));
  }
  return {};
}

/// Copies slice `round` of each chunk of the input that is used in staging memory there.
Status CudaMesh::stage_in(const Enqueuing& call, std::uint64_t round) {
  const StreamProgram& program = call.program;
  if (!call.input.is_staged) return {};
  for (std::uint32_t user = 0; user < program.uses.size(); ++user) {
    const auto& chunk = program.uses[user].input;
    const std::uint64_t bytes = program.bytes_in(chunk.bytes, round);
    if (bytes == 0) continue;
    site_.memories.count_copied(bytes);
    const CUdeviceptr to = peers_.staging_for(user, program.slice_bytes);
    const CUdeviceptr from = address(call.call.input) + chunk.offset + round * program.slice_bytes;
    XYLEM_TRY(program.scale ? batch_.add_scale(*program.scale, bytes,
                                               {pointer(to), pointer(from),
                                                bytes / program.element_bytes, call.call.factor})
                            : add_copy(program, to, from, bytes));
  }
  return batch_.flush();
}

/// Copies slice `round` of each chunk of the output that peers have written in staging memory to
/// the output.
Status CudaMesh::stage_out(const Enqueuing& call, std::uint64_t round) {
  const StreamProgram& program = call.program;
  if (!call.output.is_staged) return {};
  for (std::uint32_t user = 0; user < program.uses.size(); ++user) {
    const auto& chunk = program.uses[user].output;
    const std::uint64_t bytes = program.bytes_in(chunk.bytes, round);
    if (bytes == 0) continue;
    site_.memories.count_copied(bytes);
    XYLEM_TRY(add_copy(program,
                       address(call.call.output) + chunk.offset + round * program.slice_bytes,
                       peers_.staging_for(user, program.slice_bytes), bytes));
  }
  return batch_.flush();
}

/// Copies between memory of this rank. Copies are kernels, so that they obey the stop word.
Status CudaMesh::add_copy(const StreamProgram& program,
                          CUdeviceptr to,
                          CUdeviceptr from,
                          std::uint64_t bytes) {
  ExchangeArguments arguments;
  arguments.part_count = arguments.target_count = arguments.source_count = 1;
  arguments.counts[0] = bytes / program.element_bytes;
  arguments.operands[0] = {.place = to};
  arguments.operands[1] = {.place = from};
  return batch_.add_exchange(program.copy, bytes, arguments);
}

/// The address at which `peer` uses slice `round` of a chunk of this rank.
CUdeviceptr CudaMesh::published(const Enqueuing& call,
                                const Shared& buffer,
                                const StreamProgram::Chunk& chunk,
                                std::uint32_t peer,
                                std::uint64_t round) const noexcept {
  const std::uint64_t slice = call.program.slice_bytes;
  if (buffer.is_staged) return peers_.staging_at(peer, slice);
  const CUdeviceptr at = address(buffer.data) + chunk.offset + (round == 0 ? 0 : round * slice);
  return buffer.exported == nullptr ? at
                                    : buffer.exported->at[peer] + (at - buffer.exported->start);
}

Status CudaMesh::add_signal(const Enqueuing& call,
                            const StreamProgram::Step& step,
                            std::uint64_t round) {
  std::uint32_t* const flag = peers_.flag_at(step.peer, step.channel);
  if (step.channel > 0) return batch_.add_end(flag);
  const StreamProgram& program = call.program;
  const auto& uses = program.uses[step.peer];
  const bool is_staged = (call.input.is_staged && uses.input.bytes > 0) ||
                         (call.output.is_staged && uses.output.bytes > 0);
  const std::uint64_t count = std::max(uses.input.bytes, uses.output.bytes) / program.element_bytes;
  return batch_.add_begin({flag,
                           peers_.calls_written_to(step.peer) + rank_,
                           {published(call, call.input, uses.input, step.peer, round),
                            published(call, call.output, uses.output, step.peer, round),
                            call_of(program.call, count) | (is_staged ? 1U : 0U)}});
}

ExchangeArguments::Operand CudaMesh::operand_of(const Enqueuing& call,
                                                const StreamProgram::Operand& operand,
                                                std::uint64_t round) const noexcept {
  const StreamProgram& program = call.program;
  const bool is_output = operand.buffer == StreamProgram::Buffer::output;
  if (operand.rank != rank_) return {0, 2 * operand.rank + (is_output ? 1U : 0U)};
  if (!is_output && program.stages_input) {
    return {.place = peers_.staging_for(rank_, program.slice_bytes)};
  }
  const std::byte* const buffer = is_output ? call.call.output : call.call.input;
  const std::uint64_t begin = round == 0 ? 0 : round * program.slice_bytes;
  return {.place = address(buffer) + operand.offset + begin};
}

Status CudaMesh::add_exchange(const Enqueuing& call,
                              const StreamProgram::Step& step,
                              std::uint64_t round) {
  const StreamProgram& program = call.program;
  const bool is_copy = step.kind == Kind::copy;
  ExchangeArguments arguments;
  arguments.part_count = 1;
  arguments.is_sliced = program.stages_input;
  std::uint32_t count = 0;
  bool has_peer = false;
  const auto add = [&](const StreamProgram::Operand& operand) {
    XYLEM_CHECK(count < kMostOperands, count);
    has_peer |= operand.rank != rank_;
    arguments.operands[count++] = operand_of(call, operand, round);
  };
  const auto sources = program.sources_of(step);
  const auto target = operand_of(call, step.target, round);
  const auto source = operand_of(call, sources[0], round);
  // In a call in place, a copy may have the same source and target.
  const bool is_void = is_copy && target.buffer == source.buffer && target.place == source.place &&
                       step.target.rank == rank_;
  if (!is_void) add(step.target);
  for (const auto& put : program.puts_of(step)) add(put);
  arguments.target_count = count;
  if (count == 0) return {};
  for (const auto& each : sources) add(each);
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  const std::uint64_t bytes = round == 0 ? step.bytes : program.bytes_in(step.bytes, round);
  const bool is_compared = round == 0 && has_peer && program.has_private_counts;
  const bool is_over = round > 0 && !has_peer && !program.stages_input;
  if ((bytes == 0 && !is_compared) || is_over) return {};
  arguments.counts[0] = step.bytes / program.element_bytes;
  arguments.slice = program.slice_bytes / program.element_bytes;
  arguments.begin = round * arguments.slice;
  arguments.divisor = is_copy ? 1 : program.divisor;
  arguments.peer_calls = peers_.calls_written_to(rank_);
  arguments.call = program.call;
  arguments.number = issued_;
  arguments.mismatch =
      reinterpret_cast<std::uint64_t*>(pointer(memory_.done_on_device + sizeof(std::uint64_t)));
  return batch_.add_exchange(is_copy ? program.copy : program.reduce,
                             std::max<std::uint64_t>(bytes, 1), arguments);
}

/// Another thread may enqueue a call at the same time. If its wait_.begin() comes before this
/// check, is_drained() notices the call. Otherwise, wait_.begin() begins the wait again.
void CudaMesh::on_ended() noexcept {
  wait_.end_if([this] { return !has_graphs_ && is_drained(); });
}

std::optional<std::uint32_t> CudaMesh::mismatched_rank(std::uint64_t number) const noexcept {
  const std::uint64_t first = std::atomic_ref(memory_.done[1]).load(std::memory_order_acquire);
  if (first == 0 || number < first >> 8) return std::nullopt;
  return static_cast<std::uint32_t>(first & 0xff) - 1;
}

// ---- the end after an error ----

void CudaMesh::stop() noexcept { is_stopped_ = true; }

bool CudaMesh::is_drained() const noexcept {
  if (memory_.done == nullptr) return true;
  const std::uint64_t issued = issued_;
  if (std::atomic_ref(memory_.done[0]).load(std::memory_order_acquire) >= issued) return true;
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
  released_.begin(releases_, 0, Signals::by_writes);
  const auto words = peers_.words();
  (void)released_.add_set(address(words.stop), 1);
  for (std::uint32_t* const flags : words.flags) {
    for (std::uint32_t peer = 0; peer < peers_.count(); ++peer) {
      (void)released_.add_set(address(flags + peer), kReleased);
    }
  }
  (void)released_.flush();
  return is_done;
}

}  // namespace xylem::execution::cuda
