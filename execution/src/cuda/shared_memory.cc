// SPDX-License-Identifier: Apache-2.0
#include "cuda/shared_memory.h"

#include "cuda/gates.h"
#include "xylem/transport/transport.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

namespace xylem::execution::cuda {

using transport::ConstRegion;
using transport::DevicePlace;
using transport::DeviceRead;

namespace {

constexpr std::size_t kMostKnown = 1024;  ///< The most entries of `near_` and of `refused_`.
constexpr auto kAskEvery = std::chrono::milliseconds(1);

/// A random number that identifies this process in a DevicePlace. 0 if there are no random bytes.
std::uint64_t own_number() noexcept {
  static const std::uint64_t kNumber = [] {
    std::uint64_t drawn = 0;
    return getrandom(&drawn, sizeof drawn, 0) == sizeof drawn ? drawn : 0;
  }();
  return kNumber;
}

bool has_handle(const DevicePlace& place) noexcept {
  return std::ranges::any_of(place.handle, [](std::byte byte) { return byte != std::byte{0}; });
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
}

void SharedMemory::close_all(const NoStreamWaits& proof) noexcept {
  for (const auto& [name, opened] : far_) driver_.blocking(proof).cuIpcCloseMemHandle(opened.base);
  far_.clear();
}

Status SharedMemory::set_up(int priority, std::uint64_t* done, CUdeviceptr done_on_device) {
  done_ = done;
  done_on_device_ = done_on_device;
  return driver_.check(
      driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
      "cuStreamCreateWithPriority");
}

// ---- memory of this process ----

bool SharedMemory::share(const ConstRegion& source, DevicePlace& place) noexcept {
  const CUdeviceptr at = address(source.data);
  const auto* const own = own_.find(at, [this](const auto& found) { return name(found); });
  if (own == nullptr || !*own) return false;
  place = **own;
  place.offset = at - place.address;
  place.address = at;
  return true;
}

std::optional<DevicePlace> SharedMemory::name(const DeviceAllocation& own) const noexcept {
  if (own_number() == 0 || !own.is_on_device() || own.device != device_) return std::nullopt;
  DevicePlace place;
  place.process = own_number();
  place.allocation = own.number;
  place.address = own.start;
  if (own.has_ipc != 0) find_handle(own.start, place);
  return place;
}

/// Adds the IPC handle by which other processes open the allocation. Without a handle, only ranks
/// of this process can read the allocation.
void SharedMemory::find_handle(CUdeviceptr start, DevicePlace& place) const noexcept {
  const CurrentContext current(driver_, context_);
  CUipcMemHandle handle{};
  if (current.result() != CUDA_SUCCESS ||
      driver_.cuIpcGetMemHandle(&handle, start) != CUDA_SUCCESS) {
    return;
  }
  static_assert(sizeof handle == sizeof place.handle);
  std::memcpy(place.handle.data(), &handle, sizeof handle);
}

// ---- copies to the host ----

bool SharedMemory::is_registered(const std::byte* memory, std::uint64_t bytes) const noexcept {
  const auto after = registered_.upper_bound(memory);
  if (after == registered_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return static_cast<std::uint64_t>(memory - begin) + bytes <= size;
}

DeviceRead SharedMemory::begin_read(std::byte* target, const ConstRegion& source) noexcept {
  const CurrentContext current(driver_, context_);
  const auto is_well = [this](CUresult result, std::string_view function) {
    if (result != CUDA_SUCCESS) note_(result, function);
    return result == CUDA_SUCCESS;
  };
  const bool is_taken =
      is_well(current.result(), "cuCtxPushCurrent") &&
      (is_registered(target, source.bytes)
           ? is_well(kernels_->copy(stream_, target, source.data, source.bytes), "cuLaunchKernel")
           : is_well(driver_.cuMemcpyAsync(address(target), address(source.data), source.bytes,
                                           stream_),
                     "cuMemcpyAsync"));
  if (!is_taken) return {source.memory, 0};
  // If this write fails, state_of() reports a failure when the stream has completed all work.
  is_well(driver_.cuStreamWriteValue64(stream_, done_on_device_, ++reads_, 0),
          "cuStreamWriteValue64");
  return {source.memory, reads_};
}

DeviceRead::State SharedMemory::state_of(const DeviceRead& read) noexcept {
  using State = DeviceRead::State;
  if (read.number == 0) return State::failed;
  const auto is_done = [&] {
    return std::atomic_ref(*done_).load(std::memory_order_acquire) >= read.number;
  };
  if (is_done()) return State::done;
  // After a fault of the device, the word is not written. So the driver is queried about the
  // stream, at most once per kAskEvery.
  const auto now = Clock::now();
  if (now < asked_at_ + kAskEvery) return State::pending;
  asked_at_ = now;
  const CurrentContext current(driver_, context_);
  CUresult state = current.result();
  if (state == CUDA_SUCCESS) state = driver_.cuStreamQuery(stream_);
  if (state == CUDA_ERROR_NOT_READY) return State::pending;
  if (state != CUDA_SUCCESS) note_(state, "cuStreamQuery");
  return state == CUDA_SUCCESS && is_done() ? State::done : State::failed;
}

bool SharedMemory::register_host(std::byte* memory, std::uint64_t bytes) noexcept {
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS ||
      driver_.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
    return false;
  }
  // On almost all devices, kernels can access the memory at the host's address. Where its address
  // for the device differs, begin_read() copies by the driver.
  CUdeviceptr on_device = 0;
  if (driver_.cuMemHostGetDevicePointer(&on_device, memory, 0) == CUDA_SUCCESS &&
      on_device == address(memory)) {
    registered_.emplace(memory, bytes);
  }
  return true;
}

bool SharedMemory::unregister_host(std::byte* memory) noexcept {
  const auto no_stream_waits = NoStreamWaits::try_acquire();
  if (!no_stream_waits) return false;
  registered_.erase(memory);
  const CurrentContext current(driver_, context_);
  if (current.result() == CUDA_SUCCESS) {
    driver_.blocking(*no_stream_waits).cuMemHostUnregister(memory);
  }
  return true;
}

// ---- memory of other ranks ----

const std::byte* SharedMemory::open(const DevicePlace& place,
                                    std::uint64_t bytes,
                                    const Memory& /*reader*/) noexcept {
  if (place.process == own_number()) return open_near(place, bytes);
  Far* const opened = open_far(place);
  if (opened == nullptr) return nullptr;
  // A peer may have written any values into `place`.
  if (!contains(0, opened->bytes, place.offset, bytes)) return nullptr;
  ++opened->users;
  opened->used_at = ++uses_;
  return pointer(opened->base + place.offset);
}

void SharedMemory::close(const DevicePlace& place, const Memory& /*reader*/) noexcept {
  if (place.process == own_number()) return;
  const auto known = far_.find({place.process, place.allocation, place.handle});
  if (known == far_.end() || known->second.users == 0) return;
  if (--known->second.users == 0 && far_.size() > limits_.kept_open) make_room();
}

/// Opens memory of another rank of this process. Null if the memory does not belong to the
/// allocation that `place` names, or if this device cannot access it.
const std::byte* SharedMemory::open_near(const DevicePlace& place, std::uint64_t bytes) noexcept {
  auto known = near_.find(place.allocation);
  if (known == near_.end() ||
      !contains(known->second.start, known->second.bytes, place.address, bytes)) {
    const auto found = DeviceAllocation::of(driver_, place.address);
    if (!found || !found->is_on_device() || found->number != place.allocation) return nullptr;
    // Peer access does not cover memory without an IPC handle.
    const bool is_reached =
        found->device == device_ || (found->has_ipc != 0 && reaches(found->device));
    if (near_.size() >= kMostKnown) near_.clear();
    known =
        near_.insert_or_assign(found->number, Near{found->start, found->bytes, is_reached}).first;
  }
  const Near& near = known->second;
  const bool is_inside = contains(near.start, near.bytes, place.address, bytes);
  return near.is_reached && is_inside ? pointer(place.address) : nullptr;
}

/// Whether this device can access ordinary memory (cuMemAlloc) of another device of this process.
/// Enables peer access.
bool SharedMemory::reaches(int device) noexcept {
  if (const auto known = reaches_.find(device); known != reaches_.end()) return known->second;
  const CurrentContext current(driver_, context_);
  int can_access = 0;
  CUdevice other = 0;
  CUcontext its_context = nullptr;
  bool is_reached =
      current.result() == CUDA_SUCCESS && driver_.cuDeviceGet(&other, device) == CUDA_SUCCESS &&
      driver_.cuDeviceCanAccessPeer(&can_access, device_, other) == CUDA_SUCCESS &&
      can_access != 0 && driver_.cuDevicePrimaryCtxRetain(&its_context, other) == CUDA_SUCCESS;
  if (is_reached) {
    const CUresult result = driver_.cuCtxEnablePeerAccess(its_context, 0);
    driver_.cuDevicePrimaryCtxRelease(other);
    is_reached = result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  reaches_.emplace(device, is_reached);
  return is_reached;
}

SharedMemory::Far* SharedMemory::open_far(const DevicePlace& place) noexcept {
  const Name name{place.process, place.allocation, place.handle};
  if (const auto known = far_.find(name); known != far_.end()) return &known->second;
  if (!has_handle(place) || refused_.contains(name)) return nullptr;
  if (far_.size() >= limits_.kept_open && !make_room()) return nullptr;
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS) return nullptr;
  CUipcMemHandle handle{};
  std::memcpy(&handle, place.handle.data(), sizeof handle);
  Far opened;
  if (driver_.cuIpcOpenMemHandle(&opened.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
      CUDA_SUCCESS) {
    if (refused_.size() >= kMostKnown) refused_.clear();
    refused_.insert(name);
    return nullptr;
  }
  // If the opened memory is not device memory, `bytes` stays 0, so open() permits no access to it.
  const auto found = DeviceAllocation::of(driver_, opened.base);
  if (found && found->is_on_device()) opened.bytes = found->bytes;
  opened.theirs = place.address - place.offset;
  note_replaced(name, opened);
  return &far_.emplace(name, opened).first->second;
}

/// Call this when an allocation of a peer has been opened. The peer has freed its earlier
/// allocations at the same addresses, so they will be closed before all others.
void SharedMemory::note_replaced(const Name& name, const Far& opened) noexcept {
  for (auto& [other, far] : far_) {
    const bool overlaps =
        far.theirs < opened.theirs + opened.bytes && opened.theirs < far.theirs + far.bytes;
    if (std::get<0>(other) == std::get<0>(name) && overlaps) far.used_at = 0;
  }
}

/// Closes opened allocations that nobody reads, the least recently used first, until fewer than
/// Limits::kept_open are open. A peer may have freed such an allocation, but its memory cannot be
/// reused while it is open here. Nothing is closed while a stream of this process waits for a call,
/// since the driver might wait for that stream. False if as many allocations are open as may be.
bool SharedMemory::make_room() noexcept {
  const CurrentContext current(driver_, context_);
  while (far_.size() >= limits_.kept_open) {
    const auto no_stream_waits = NoStreamWaits::try_acquire();
    if (!no_stream_waits) break;
    auto oldest = far_.end();
    for (auto at = far_.begin(); at != far_.end(); ++at) {
      const bool is_older = oldest == far_.end() || at->second.used_at < oldest->second.used_at;
      if (at->second.users == 0 && is_older) oldest = at;
    }
    if (oldest == far_.end()) break;
    driver_.blocking(*no_stream_waits).cuIpcCloseMemHandle(oldest->second.base);
    far_.erase(oldest);
  }
  return far_.size() < limits_.most_open;
}

}  // namespace xylem::execution::cuda
