// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_compute.h"

#include "cuda/kernels/arguments.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace xylem::execution::cuda {

namespace {

static_assert(kMostSources == kMostSourcesOnDevice);
constexpr auto kAskEvery = std::chrono::milliseconds(1);
constexpr int kFailedAsks = 3;  ///< Consecutive failed queries after which the device is lost.

}  // namespace

// ---- beginning and end ----

namespace {

/// Frees a Compute. If streams of the process wait for calls, its resources cannot be freed
/// (BlockingDriver). The Compute is then kept, and freed together with a later Compute.
void end(CudaCompute* compute) {
  static Mutex mutex;
  // Never destroyed, not even when the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto* const kKept XYLEM_LOCKING(pt_guarded_by(mutex)) =
      new std::vector<std::unique_ptr<CudaCompute>>();
  const Lock lock(mutex);
  kKept->emplace_back(compute);
  const auto no_stream_waits = NoStreamWaits::try_acquire();
  if (!no_stream_waits) return;
  for (const auto& ended : *kKept) ended->free(*no_stream_waits);
  kKept->clear();
}

}  // namespace

Result<std::shared_ptr<CudaCompute>> CudaCompute::make(std::shared_ptr<const Driver> driver,
                                                       const CudaOptions& options) {
  XYLEM_CHECK(options.queues > 0, options.queues);
  std::shared_ptr<CudaCompute> made(new CudaCompute(std::move(driver)), end);
  const Driver& cuda = *made->driver_;
  XYLEM_TRY(made->device_, cuda.device(options.device));
  XYLEM_TRY(cuda.check(cuda.cuDevicePrimaryCtxRetain(&made->context_, made->device_),
                       "cuDevicePrimaryCtxRetain"));
  XYLEM_TRY(made->set_up(options));
  return made;
}

Status CudaCompute::set_up(const CudaOptions& options) {
  waiting_ = std::make_unique<WaitingStreams>(options.most_waiting_streams);
  fuses_on_shared_devices_ = options.fuses_on_shared_devices;
  const CurrentContext current(*driver_, context_);
  XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
  int has_words = 0;
  XYLEM_TRY(
      driver_->check(driver_->cuDeviceGetAttribute(
                         &has_words, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device_),
                     "cuDeviceGetAttribute"));
  if (has_words == 0) {
    return failure(Code::unsupported,
                   fmt::format("CUDA device {} has no stream memory operations, by which streams "
                               "and calls wait for each other",
                               device_));
  }
  int least = 0, greatest = 0;
  XYLEM_TRY(driver_->check(driver_->cuCtxGetStreamPriorityRange(&least, &greatest),
                           "cuCtxGetStreamPriorityRange"));
  queues_.reserve(options.queues);
  scratch_ = std::make_unique<HostScratch>(*driver_, context_);
  device_scratch_ = std::make_unique<BlockPool<DeviceSource>>(*driver_, context_);
  meshes_ = std::make_unique<MeshMemories>(*driver_, options.mesh_staging_bytes);
  XYLEM_TRY(kernels_, LoadedKernels::load(driver_, context_, device_, options.kernel_names));
  for (std::uint32_t i = 0; i < options.queues; ++i) XYLEM_TRY(make_queue(greatest));
  XYLEM_TRY(allocate_words());
  shared_ = std::make_unique<SharedMemory>(
      *driver_, kernels_, context_, options.device,
      [this](CUresult result, std::string_view function) { note(result, function); },
      SharedMemory::Limits{});
  return shared_->set_up(greatest, words_ + queues_.size(), word_on_device(queues_.size()));
}

Status CudaCompute::make_queue(int priority) {
  Queue& queue = queues_.emplace_back();
  XYLEM_TRY(driver_->check(
      driver_->cuStreamCreateWithPriority(&queue.stream, CU_STREAM_NON_BLOCKING, priority),
      "cuStreamCreateWithPriority"));
  return driver_->check(driver_->cuEventCreate(&queue.event, CU_EVENT_DISABLE_TIMING),
                        "cuEventCreate");
}

Status CudaCompute::allocate_words() {
  const std::size_t first_gate = queues_.size() + 1;
  const std::size_t count = first_gate + Gates::kMost;
  void* memory = nullptr;
  XYLEM_TRY(driver_->check(
      driver_->cuMemHostAlloc(&memory, count * sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
      "cuMemHostAlloc"));
  words_ = static_cast<std::uint64_t*>(memory);
  std::fill_n(words_, count, 0);
  XYLEM_TRY(driver_->check(driver_->cuMemHostGetDevicePointer(&words_on_device_, memory, 0),
                           "cuMemHostGetDevicePointer"));
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].done = words_ + i;
    queues_[i].done_on_device = word_on_device(i);
  }
  gates_ = std::make_unique<Gates>(*driver_, words_ + first_gate, word_on_device(first_gate));
  return {};
}

void CudaCompute::free(const NoStreamWaits& proof) noexcept {
  if (context_ == nullptr) return;
  {
    const CurrentContext current(*driver_, context_);
    const bool has_gates = gates_ != nullptr && gates_->were_made();
    if (shared_ != nullptr) shared_->close_all(proof);
    shared_.reset();
    gates_.reset();
    if (scratch_ != nullptr) scratch_->free(proof);
    if (meshes_ != nullptr) meshes_->free(proof);
    if (device_scratch_ != nullptr) device_scratch_->free(proof);
    for (const Queue& queue : queues_) {
      if (queue.event != nullptr) driver_->cuEventDestroy(queue.event);
      if (queue.stream != nullptr) driver_->cuStreamDestroy(queue.stream);
    }
    // If gates were made, streams of the application may still have to read or write the words of
    // these gates. So the words stay allocated until the process ends.
    if (words_ != nullptr && !has_gates) driver_->blocking(proof).cuMemFreeHost(words_);
    LoadedKernels::release(std::move(kernels_), proof);
  }
  driver_->cuDevicePrimaryCtxRelease(device_);
}

// ---- work ----

Ticket CudaCompute::enqueue(std::uint32_t queue,
                            const ComputeWork& work,
                            std::span<const Ticket> after) noexcept {
  Queue& own = queues_[queue];
  if (!is_dead_) {
    const CurrentContext current(*driver_, context_);
    if (!note(current.result(), "cuCtxPushCurrent")) {
      for (const Ticket before : after) follow(own, before);
      issue(own, work);
      // The number is written even if the work could not be enqueued, so that its ticket completes.
      note(driver_->cuStreamWriteValue64(own.stream, own.done_on_device, own.issued + 1, 0),
           "cuStreamWriteValue64");
    }
  }
  return {++own.issued, queue};
}

/// Makes the work that is enqueued next on `queue` wait for the work of the ticket `before`.
void CudaCompute::follow(Queue& queue, Ticket before) noexcept {
  Queue& other = queues_[before.queue];
  if (&other == &queue || is_done(other, before.number)) return;
  if (other.recorded < before.number) {
    if (note(driver_->cuEventRecord(other.event, other.stream), "cuEventRecord")) return;
    other.recorded = other.issued;
  }
  note(driver_->cuStreamWaitEvent(queue.stream, other.event, CU_EVENT_WAIT_DEFAULT),
       "cuStreamWaitEvent");
}

void CudaCompute::issue(const Queue& queue, const ComputeWork& work) noexcept {
  const std::uint64_t count = work.bytes / work.element_bytes;
  switch (work.kind) {
    case ComputeWork::Kind::copy:
      // A copy of memory onto itself, as in a call in place, is skipped: other ranks may be reading
      // the memory.
      if (work.target == work.sources[0]) return;
      note(kernels_->copy(queue.stream, work.target, work.sources[0], work.bytes),
           "cuLaunchKernel");
      return;
    case ComputeWork::Kind::reduce: {
      ReduceArguments arguments;
      XYLEM_CHECK(work.sources.size() <= kMostSources, work.sources.size());
      arguments.target = work.target;
      arguments.count = count;
      arguments.source_count = static_cast<std::uint32_t>(work.sources.size());
      arguments.divisor = work.finish.divisor;
      std::ranges::copy(work.sources, arguments.sources);
      note(kernels_->launch(queue.stream, work.kernel, work.bytes, arguments), "cuLaunchKernel");
      return;
    }
    case ComputeWork::Kind::scale: {
      ScaleArguments arguments{work.target, work.sources[0], count, work.factor};
      note(kernels_->launch(queue.stream, work.kernel, work.bytes, arguments), "cuLaunchKernel");
      return;
    }
  }
}

// ---- completion and faults ----

bool CudaCompute::is_done(const Queue& queue, std::uint64_t number) const noexcept {
  return std::atomic_ref(*queue.done).load(std::memory_order_acquire) >= number;
}

bool CudaCompute::has_completed(Ticket ticket) noexcept {
  if (is_dead_) return true;
  if (Gates::is_gate(ticket)) {
    if (gates_->is_open(ticket)) return true;
    ask(queues_.front());
    return is_dead_;
  }
  Queue& queue = queues_[ticket.queue];
  if (is_done(queue, ticket.number)) return true;
  // After a fault, the write of the work's number may not have been enqueued. The work has then
  // completed when the stream has completed all enqueued work.
  return ask(queue) == CUDA_SUCCESS && has_fault_;
}

/// Queries the driver for the state of a stream, at most once per kAskEvery. After a fault of the
/// device, streams write no numbers, so only this query shows that all work has ended. Returns
/// CUDA_SUCCESS if the stream has completed all work, or if the device is lost.
CUresult CudaCompute::ask(Queue& queue) noexcept {
  const auto now = Clock::now();
  if (now < queue.asked_at + kAskEvery) return CUDA_ERROR_NOT_READY;
  queue.asked_at = now;
  const CurrentContext current(*driver_, context_);
  CUresult state = current.result();
  const bool is_asked = state == CUDA_SUCCESS;
  if (is_asked) state = driver_->cuStreamQuery(queue.stream);
  if (state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY) {
    failed_asks_ = 0;
    return state;
  }
  note(state, is_asked ? "cuStreamQuery" : "cuCtxPushCurrent");
  // If the device is lost, each further query fails, too. After any other error, the streams
  // continue their work, and further queries succeed.
  if (++failed_asks_ < kFailedAsks) return CUDA_ERROR_NOT_READY;
  is_dead_ = true;
  return CUDA_SUCCESS;
}

bool CudaCompute::note(CUresult result, std::string_view function) noexcept {
  if (result == CUDA_SUCCESS) return false;
  const Lock lock(mutex_);
  if (fault_.is_ok()) {
    const Status why = driver_->check(result, function);
    fault_ = failure(Code::internal, fmt::format("CUDA device {}: {}", device_, why.message()));
    has_fault_ = true;
  }
  return true;
}

Status CudaCompute::health() const {
  if (!has_fault_) return {};
  const Lock lock(mutex_);
  return fault_;
}

DeviceUse CudaCompute::device_use() const noexcept {
  const DriverCounters& counters = *driver_->counters;
  return {counters.calls.load(std::memory_order_relaxed),
          std::chrono::nanoseconds(counters.nanoseconds.load(std::memory_order_relaxed)),
          meshes_->copied_bytes()};
}

// ---- gates ----

Result<Ticket> CudaCompute::gate_after(void* stream) {
  const CurrentContext current(*driver_, context_);
  XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
  return gates_->after(static_cast<CUstream>(stream));
}

Status CudaCompute::check_that_streams_may_wait() const {
  if (waiting_->most() > 0) return {};
  return failure(Code::unsupported,
                 "CUDA_DEVICE_MAX_CONNECTIONS=1 gives all streams one hardware queue, so nothing "
                 "else would run while a stream waits for a call; unset it (the driver then uses "
                 "8), or wait for the Work of Communicator::after() in a thread");
}

Result<Ticket> CudaCompute::gate_before(void* stream) {
  XYLEM_TRY(check_that_streams_may_wait());
  const CurrentContext current(*driver_, context_);
  XYLEM_TRY(driver_->check(current.result(), "cuCtxPushCurrent"));
  return gates_->before(static_cast<CUstream>(stream));
}

Result<std::unique_ptr<Mesh>> CudaCompute::make_mesh(std::uint32_t rank) {
  XYLEM_TRY(check_that_streams_may_wait());
  return CudaMesh::make({.driver = driver_,
                         .kernels = kernels_,
                         .device = device_,
                         .memories = *meshes_,
                         .gates = *gates_,
                         .waiting = *waiting_,
                         .fuses_on_shared_devices = fuses_on_shared_devices_},
                        rank);
}

}  // namespace xylem::execution::cuda

namespace xylem::execution {

Result<std::shared_ptr<Compute>> make_cuda_compute(const CudaOptions& options) {
  XYLEM_TRY(auto driver, cuda::Driver::open(options.driver));
  XYLEM_TRY(auto compute, cuda::CudaCompute::make(std::move(driver), options));
  return std::shared_ptr<Compute>(std::move(compute));
}

}  // namespace xylem::execution
