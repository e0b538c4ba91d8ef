// SPDX-License-Identifier: Apache-2.0
#include "mixed/cuda_device.h"

#include "xylem/base/check.h"
#include "xylem/base/clock.h"

#include <dlfcn.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <thread>

namespace xylem::test::mixed {

namespace cuda = execution::cuda;

namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr std::uint64_t kSlab = std::uint64_t{16} << 20;
constexpr int kSmallest = 8;  ///< Logarithm of the smallest allocation.
constexpr unsigned char kGarbage = 0xe7;
/// The stream number of shelves for Room::seen. This memory can be reused at once, since no stream
/// uses it when it is released.
constexpr std::uint32_t kNoStream = ~0U;

/// Ends the process on an error of the driver.
void must(const cuda::Driver& driver, CUresult result, const char* function) {
  const Status status = driver.check(result, function);
  XYLEM_CHECK(status.is_ok(), status.message());
}

CUdeviceptr address(const std::byte* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

int class_of(std::uint64_t bytes) {
  return std::max(kSmallest, static_cast<int>(std::bit_width(bytes - 1)));
}

}  // namespace

CudaDevice::CudaDevice(std::uint32_t number) {
  auto driver = cuda::Driver::open(kLibrary);
  XYLEM_CHECK(driver.is_ok(), driver.status().message());
  driver_ = *driver;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  fill_ = reinterpret_cast<decltype(fill_)>(::dlsym(library, "cuMemsetD8Async"));
  misuses_ = reinterpret_cast<decltype(misuses_)>(::dlsym(library, "fake_cuda_misuses"));
  last_misuse_ =
      reinterpret_cast<decltype(last_misuse_)>(::dlsym(library, "fake_cuda_last_misuse"));
  int count = 0;
  must(*driver_, driver_->cuDeviceGetCount(&count), "cuDeviceGetCount");
  number_ = static_cast<int>(number) % count;
  must(*driver_, driver_->cuDevicePrimaryCtxRetain(&context_, number_), "cuDevicePrimaryCtxRetain");
  must(*driver_, driver_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
  for (std::uint32_t i = 1; i < kStreams; ++i) {
    must(*driver_, driver_->cuStreamCreateWithPriority(&streams_[i], CU_STREAM_NON_BLOCKING, 0),
         "cuStreamCreateWithPriority");
  }
}

CudaDevice::~CudaDevice() {
  renew();
  for (std::byte* const slab : pinned_.all) driver_->blocking(cuda::MayWait{}).cuMemFreeHost(slab);
  for (std::uint32_t i = 1; i < kStreams; ++i) driver_->cuStreamDestroy(streams_[i]);
  CUcontext popped = nullptr;
  driver_->cuCtxPopCurrent(&popped);
  driver_->cuDevicePrimaryCtxRelease(number_);
}

// ---- memory ----

std::byte* CudaDevice::allocate(Kind kind, std::uint64_t bytes) const {
  if (kind == Kind::pinned) {
    void* memory = nullptr;
    must(*driver_, driver_->cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE),
         "cuMemHostAlloc");
    return static_cast<std::byte*>(memory);
  }
  CUdeviceptr memory = 0;
  must(*driver_, driver_->cuMemAlloc(&memory, bytes), "cuMemAlloc");
  return reinterpret_cast<std::byte*>(memory);
}

/// Returns a part of a slab.
std::byte* CudaDevice::carve(Kind kind, std::uint64_t bytes) {
  Slabs& slabs = kind == Kind::pinned ? pinned_ : device_;
  if (slabs.size - slabs.used < bytes) {
    slabs.size = std::max(kSlab, bytes);
    slabs.used = 0;
    slabs.all.push_back(allocate(kind, slabs.size));
  }
  std::byte* const part = slabs.all.back() + slabs.used;
  slabs.used += bytes;
  return part;
}

std::byte* CudaDevice::take_from(const Shelf& shelf) {
  const auto& [kind, stream, size_class] = shelf;
  auto& kept = free_[shelf];
  if (kept.empty()) return carve(kind, std::uint64_t{1} << size_class);
  std::byte* const last = kept.back();
  kept.pop_back();
  return last;
}

std::shared_ptr<std::byte> CudaDevice::take_seen(int size_class) {
  const Shelf shelf{Kind::pinned, kNoStream, size_class};
  return {take_from(shelf), [this, shelf](std::byte* memory) { free_[shelf].push_back(memory); }};
}

Room CudaDevice::take(std::uint64_t bytes, Kind kind, std::uint32_t stream, std::uint32_t last) {
  const int size_class = class_of(bytes);
  Room room{nullptr, take_seen(size_class), bytes};
  if (kind == Kind::own) {
    room.memory = {allocate(kind, bytes),
                   [this](std::byte* memory) { given_up_.push_back(memory); }};
    return room;
  }
  const auto give_back = [this, bytes, shelf = Shelf{kind, last, size_class}](std::byte* memory) {
    must(*driver_, fill_(address(memory), kGarbage, bytes, streams_[std::get<1>(shelf)]),
         "cuMemsetD8Async");
    free_[shelf].push_back(memory);
  };
  room.memory = {take_from({kind, stream, size_class}), give_back};
  return room;
}

void CudaDevice::renew() {
  for (std::uint32_t i = 0; i < kStreams; ++i) {
    must(*driver_, driver_->cuStreamSynchronize(streams_[i]), "cuStreamSynchronize");
  }
  std::erase_if(free_, [](const auto& shelf) { return std::get<0>(shelf.first) == Kind::shared; });
  for (const auto* const all : {&device_.all, &given_up_}) {
    for (std::byte* const memory : *all) {
      must(*driver_, driver_->blocking(cuda::MayWait{}).cuMemFree(address(memory)), "cuMemFree");
    }
  }
  device_ = {};
  given_up_.clear();
}

// ---- streams ----

void CudaDevice::copy(const std::byte* target,
                      const std::byte* source,
                      std::uint64_t bytes,
                      CUstream on) {
  must(*driver_, driver_->cuMemcpyAsync(address(target), address(source), bytes, on),
       "cuMemcpyAsync");
}

void CudaDevice::write(const Room& room, std::uint32_t stream) {
  copy(room.memory.get(), room.seen.get(), room.bytes, streams_[stream]);
}

void CudaDevice::read(const Room& room, std::uint32_t stream) {
  copy(room.seen.get(), room.memory.get(), room.bytes, streams_[stream]);
}

bool CudaDevice::synchronize(std::uint32_t stream, std::chrono::seconds limit) {
  constexpr int kYields = 100;
  const Deadline deadline = Deadline::after(limit);
  for (int tries = 0;; ++tries) {
    const CUresult state = driver_->cuStreamQuery(streams_[stream]);
    if (state != CUDA_ERROR_NOT_READY) {
      must(*driver_, state, "cuStreamQuery");
      return true;
    }
    if (deadline.passed()) return false;
    if (tries < kYields) {
      std::this_thread::yield();
    } else {
      ::poll(nullptr, 0, 1);
    }
  }
}

std::string CudaDevice::misuse() const {
  if (misuses_ == nullptr || misuses_() == 0) return {};
  return "misuse of the driver: " + std::string(last_misuse_());
}

}  // namespace xylem::test::mixed
