// SPDX-License-Identifier: Apache-2.0
#include "process/cuda_bench.h"

#include "xylem/base/check.h"
#include "xylem/base/clock.h"

#include <dlfcn.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <type_traits>

namespace xylem::test {

namespace cuda = execution::cuda;

namespace {

constexpr const char* kLibrary = "libcuda.so.1";

/// While an object of this class exists, no planned fault affects this thread's calls of the
/// driver.
class OwnCalls {
 public:
  OwnCalls() { StandIn::get().exempt(1); }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  ~OwnCalls() { StandIn::get().exempt(0); }
};

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

const StandIn& StandIn::get() {
  static const StandIn kStandIn = [] {
    void* const library = ::dlopen(kLibrary, RTLD_NOW);
    const auto find = [library](const char* name, auto& function) {
      void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
      XYLEM_CHECK(found != nullptr, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    StandIn made;
    find("fake_cuda_exempt", made.exempt);
    find("fake_cuda_forbid_opened", made.forbid_opened);
    find("fake_cuda_reset", made.reset);
    find("fake_cuda_calls", made.calls);
    find("fake_cuda_misuses", made.misuses);
    find("fake_cuda_last_misuse", made.last_misuse);
    return made;
  }();
  return kStandIn;
}

CudaBench::CudaBench(int device, std::uint64_t count) : device_(device) {
  const OwnCalls own;
  driver_ = cuda::Driver::open(kLibrary).value();
  must(driver_->cuDevicePrimaryCtxRetain(&context_, device));
  must(driver_->cuCtxPushCurrent(context_));
  must(driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
  const std::uint64_t bytes = 2 * count * sizeof(std::uint32_t);
  for (CUdeviceptr* const memory : {&input_, &output_}) must(driver_->cuMemAlloc(memory, bytes));
  void* words = nullptr;
  must(driver_->cuMemHostAlloc(&words, 2 * bytes + sizeof *marker_, 0));
  before_ = static_cast<std::uint32_t*>(words);
  after_ = before_ + 2 * count;
  marker_ = reinterpret_cast<std::uint64_t*>(after_ + 2 * count);
  *marker_ = 0;
}

CudaBench::~CudaBench() {
  const OwnCalls own;
  CUcontext popped = nullptr;
  driver_->cuCtxPopCurrent(&popped);
}

void CudaBench::must(CUresult result) const {
  const Status status = driver_->check(result, "the test's call");
  XYLEM_CHECK(status.is_ok(), status.message());
}

void CudaBench::produce(void* memory, std::uint64_t count) {
  const OwnCalls own;
  driver_->cuMemcpyAsync(address(memory), address(before_), count * sizeof *before_, stream_);
}

void CudaBench::consume(const void* memory, std::uint64_t count) {
  const OwnCalls own;
  driver_->cuMemcpyAsync(address(after_), address(memory), count * sizeof *after_, stream_);
}

CudaBench::State CudaBench::wait() {
  const OwnCalls own;
  driver_->cuStreamWriteValue64(stream_, address(marker_), ++number_, 0);
  const Deadline deadline = Deadline::after(kSoon);
  // The number of yields is small: if other processes compute, a thread that yields often may get
  // no core for seconds.
  constexpr int kYields = 100;
  int tries = 0;
  while (std::atomic_ref(*marker_).load(std::memory_order_acquire) != number_) {
    const CUresult state = driver_->cuStreamQuery(stream_);
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return State::lost;
    if (deadline.passed()) return State::stalled;
    if (++tries < kYields) {
      std::this_thread::yield();
    } else {
      ::poll(nullptr, 0, 1);
    }
  }
  return State::done;
}

}  // namespace xylem::test
