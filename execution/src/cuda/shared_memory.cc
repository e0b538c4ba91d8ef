// SPDX-License-Identifier: Apache-2.0
#include "cuda/shared_memory.h"

#include "xylem/transport/transport.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace xylem::execution::cuda {

using transport::ConstRegion;
using transport::DevicePlace;

namespace {

/// Allocations of peers that stay open although nobody reads them at present, so that training
/// steps, which use the same buffers again, need not open them again.
constexpr std::size_t kKeptOpen = 64;
constexpr std::size_t kKeptHandles = 1024;

CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }
const std::byte* pointer(CUdeviceptr address) noexcept {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// The number of this process, by which it knows places of its own.
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

/// What the driver knows about an address.
struct SharedMemory::Facts {
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  int device = -1;
  int has_ipc = 0;  ///< Other processes can open it, and other devices can reach it.
  std::uint64_t allocation = 0;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
};

SharedMemory::~SharedMemory() {
  for (const auto& [name, opened] : opened_) driver_.cuIpcCloseMemHandle(opened.base);
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
}

Status SharedMemory::set_up(int priority) {
  return driver_.check(
      driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
      "cuStreamCreateWithPriority");
}

/// False if the driver does not know the address.
bool SharedMemory::find_facts(CUdeviceptr address, Facts& facts) const noexcept {
  std::array<CUpointer_attribute, 6> asked{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
  };
  std::array<void*, 6> answers{&facts.type,       &facts.device, &facts.has_ipc,
                               &facts.allocation, &facts.start,  &facts.bytes};
  return driver_.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), address) ==
             CUDA_SUCCESS &&
         facts.type == CU_MEMORYTYPE_DEVICE && facts.bytes > 0;
}

// ---- memory of this process ----

bool SharedMemory::share(const ConstRegion& source, DevicePlace& place) noexcept {
  const CUdeviceptr at = address(source.data);
  Facts facts;
  if (own_number() == 0 || !find_facts(at, facts) || facts.device != device_) return false;
  place = {};
  place.process = own_number();
  place.allocation = facts.allocation;
  place.address = at;
  place.offset = at - facts.start;
  if (facts.has_ipc == 0) return true;
  const std::lock_guard lock(mutex_);
  auto known = handles_.find(facts.allocation);
  if (known == handles_.end()) {
    if (handles_.size() >= kKeptHandles) handles_.clear();
    const CurrentContext current(driver_, context_);
    CUipcMemHandle handle{};
    if (current.result() != CUDA_SUCCESS ||
        driver_.cuIpcGetMemHandle(&handle, facts.start) != CUDA_SUCCESS) {
      return true;
    }
    known = handles_.emplace(facts.allocation, handle).first;
  }
  static_assert(sizeof known->second == sizeof place.handle);
  std::memcpy(place.handle.data(), &known->second, sizeof known->second);
  return true;
}

bool SharedMemory::read(std::byte* target, const ConstRegion& source) noexcept {
  const std::lock_guard lock(reading_);
  const CurrentContext current(driver_, context_);
  const auto is_done = [this](CUresult result, std::string_view function) {
    if (result != CUDA_SUCCESS) note_(result, function);
    return result == CUDA_SUCCESS;
  };
  return is_done(current.result(), "cuCtxPushCurrent") &&
         is_done(
             driver_.cuMemcpyAsync(address(target), address(source.data), source.bytes, stream_),
             "cuMemcpyAsync") &&
         is_done(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

// ---- memory of peers ----

const std::byte* SharedMemory::open(const DevicePlace& place,
                                    std::uint64_t bytes,
                                    const Memory& /*reader*/) noexcept {
  const std::lock_guard lock(mutex_);
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS) return nullptr;
  if (place.process == own_number()) return open_here(place, bytes);
  Opened* const opened = open_there(place);
  if (opened == nullptr) return nullptr;
  // A peer may have written anything into the place.
  if (place.offset > opened->bytes || bytes > opened->bytes - place.offset) return nullptr;
  ++opened->users;
  opened->used_at = ++uses_;
  return pointer(opened->base + place.offset);
}

/// Memory of another rank of this process. Null if it is not what the place says, or if this device
/// does not reach it.
const std::byte* SharedMemory::open_here(const DevicePlace& place, std::uint64_t bytes) noexcept {
  Facts facts;
  if (!find_facts(place.address, facts) || facts.allocation != place.allocation) return nullptr;
  const std::uint64_t offset = place.address - facts.start;
  if (bytes > facts.bytes - offset) return nullptr;
  if (facts.device == device_) return pointer(place.address);
  // Peer access does not cover memory without a handle.
  return facts.has_ipc != 0 && reaches(facts.device) ? pointer(place.address) : nullptr;
}

/// Whether this device reaches ordinary memory of another device of this process.
bool SharedMemory::reaches(int device) noexcept {
  if (const auto known = reaches_.find(device); known != reaches_.end()) return known->second;
  int can_access = 0;
  CUdevice other = 0;
  CUcontext its_context = nullptr;
  bool is_reached = driver_.cuDeviceGet(&other, device) == CUDA_SUCCESS &&
                    driver_.cuDeviceCanAccessPeer(&can_access, device_, other) == CUDA_SUCCESS &&
                    can_access != 0 &&
                    driver_.cuDevicePrimaryCtxRetain(&its_context, other) == CUDA_SUCCESS;
  if (is_reached) {
    const CUresult result = driver_.cuCtxEnablePeerAccess(its_context, 0);
    driver_.cuDevicePrimaryCtxRelease(other);
    is_reached = result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  reaches_.emplace(device, is_reached);
  return is_reached;
}

/// Memory of another process. Null if it cannot be opened.
SharedMemory::Opened* SharedMemory::open_there(const DevicePlace& place) noexcept {
  const Name name{place.handle, place.allocation};
  if (const auto known = opened_.find(name); known != opened_.end()) return &known->second;
  if (!has_handle(place) || refused_.contains(name)) return nullptr;
  close_unused();
  CUipcMemHandle handle{};
  std::memcpy(&handle, place.handle.data(), sizeof handle);
  Opened opened;
  Facts facts;
  bool is_open = driver_.cuIpcOpenMemHandle(&opened.base, handle,
                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
  if (is_open && !find_facts(opened.base, facts)) {
    driver_.cuIpcCloseMemHandle(opened.base);
    is_open = false;
  }
  if (!is_open) {
    if (refused_.size() >= kKeptHandles) refused_.clear();
    refused_.insert(name);
    return nullptr;
  }
  opened.bytes = facts.bytes;
  return &opened_.emplace(name, opened).first->second;
}

/// Closes allocations that nobody reads, those first that were not used for longest, until there is
/// room for another. Peers may have freed them; as long as they are open here, their memory cannot
/// be used for anything else.
void SharedMemory::close_unused() noexcept {
  while (opened_.size() >= kKeptOpen && !gates_.are_streams_waiting()) {
    auto oldest = opened_.end();
    for (auto at = opened_.begin(); at != opened_.end(); ++at) {
      const bool is_older = oldest == opened_.end() || at->second.used_at < oldest->second.used_at;
      if (at->second.users == 0 && is_older) oldest = at;
    }
    if (oldest == opened_.end()) return;
    driver_.cuIpcCloseMemHandle(oldest->second.base);
    opened_.erase(oldest);
  }
}

void SharedMemory::close(const DevicePlace& place, const Memory& /*reader*/) noexcept {
  if (place.process == own_number()) return;
  const std::lock_guard lock(mutex_);
  const auto known = opened_.find({place.handle, place.allocation});
  if (known != opened_.end() && known->second.users > 0) --known->second.users;
}

}  // namespace xylem::execution::cuda
