// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh_peers.h"

#include "xylem/transport/transport.h"

#include <fmt/format.h>

#include <sys/random.h>

#include <algorithm>
#include <cstring>

namespace xylem::execution::cuda {
namespace {

// Offsets in the memory of flags. The stop word is at offset 0, in a cache line of its own.
constexpr std::uint64_t kFirstFlag = 64;
constexpr std::uint64_t kNonce = 2048;
constexpr std::uint64_t kEnded = 2112;
constexpr std::uint64_t kPeerCalls = 2176;
static_assert(kFirstFlag + kMeshChannels * kMostMeshRanks * sizeof(std::uint32_t) <= kNonce);
static_assert(kNonce + sizeof(MeshMember::nonce) <= kEnded);
static_assert(kPeerCalls + kMostMeshRanks * sizeof(PeerCall) <= MeshMemories::kFlagBytes);
static_assert(kMostSignals + 1 == kMostMeshRanks && kChannels == kMeshChannels);

std::uint64_t place_of_flag(std::uint32_t from, std::uint32_t channel) noexcept {
  return kFirstFlag + (channel * kMostMeshRanks + from) * sizeof(std::uint32_t);
}

/// Processes share the device by MPS, so that it runs their work at the same time.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);  // Not in cuda.h of CUDA 12.

template <class T>
T* pointer_to(CUdeviceptr address) noexcept {
  return reinterpret_cast<T*>(pointer(address));
}

}  // namespace

Status MeshPeers::set_up(const MeshMemories::Memory& own,
                         std::uint64_t staging_bytes,
                         CUdevice device,
                         CUstream stream,
                         std::unique_ptr<SharedMemory> shared) {
  own_ = own;
  device_ = device;
  shared_ = std::move(shared);
  if (getrandom(member_.nonce.data(), member_.nonce.size(), 0) !=
      static_cast<ssize_t>(member_.nonce.size())) {
    return failure(Code::internal, "the system gives no random bytes");
  }
  XYLEM_TRY(
      driver_.check(driver_.cuMemsetD32Async(
                        own.flags, 0, MeshMemories::kFlagBytes / sizeof(std::uint32_t), stream),
                    "cuMemsetD32Async"));
  XYLEM_TRY(driver_.check(driver_.cuMemcpyAsync(own.flags + kNonce, address(member_.nonce.data()),
                                                member_.nonce.size(), stream),
                          "cuMemcpyAsync"));
  XYLEM_TRY(driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize"));
  const transport::ConstRegion flags{.data = pointer(own.flags), .bytes = MeshMemories::kFlagBytes};
  const transport::ConstRegion staging{.data = pointer(own.staging), .bytes = staging_bytes};
  if (!shared_->share(flags, member_.flags) || !shared_->share(staging, member_.staging)) {
    return failure(Code::unsupported, "the device cannot share its memory");
  }
  CUuuid uuid{};
  XYLEM_TRY(driver_.check(driver_.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  member_.staging_bytes = staging_bytes;
  static_assert(sizeof uuid == sizeof member_.device);
  std::memcpy(member_.device.data(), &uuid, sizeof uuid);
  return {};
}

Result<MeshView> MeshPeers::open(std::span<const MeshMember> members, CUstream stream) {
  if (members.size() > kMostMeshRanks) {
    return failure(Code::unsupported, fmt::format("{} ranks; at most {} can be in a mesh",
                                                  members.size(), kMostMeshRanks));
  }
  peers_.resize(members.size());
  are_together_ = std::ranges::all_of(members, [&](const MeshMember& member) {
    return member.flags.process == member_.flags.process && member.device == member_.device;
  });
  may_wait_in_kernels_ =
      std::ranges::count(members, members[rank_].device, &MeshMember::device) == 1 &&
      !has(kMpsEnabled) && !has(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT);
  // Kernels fence what they have written before they set a flag. That a stream sees it after a wait
  // for the flag is documented only for a wait that flushes.
  if (!are_together_ && has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)) flush_ = Flush::yes;
  MeshView view{};
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    Status opened = open(members[rank], peers_[rank]);
    if (opened) opened = check_nonce(peers_[rank], stream);
    if (!opened) {
      return failure(opened.code(), fmt::format("rank {}: {}", rank, opened.message()));
    }
    view[rank] = peers_[rank].staging;
  }
  return view;
}

void MeshPeers::start(std::span<const MeshView> views) noexcept {
  for (std::size_t rank = 0; rank < views.size(); ++rank) staging_at_[rank] = views[rank][rank_];
}

std::vector<bool> MeshPeers::are_elsewhere() const {
  std::vector<bool> are_elsewhere;
  are_elsewhere.reserve(peers_.size());
  for (const Peer& peer : peers_) {
    are_elsewhere.push_back(peer.member.flags.process != member_.flags.process);
  }
  return are_elsewhere;
}

/// Whether the device has a capability.
bool MeshPeers::has(CUdevice_attribute attribute) const noexcept {
  int value = 0;
  return driver_.cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS && value != 0;
}

Status MeshPeers::open(const MeshMember& member, Peer& peer) {
  const bool is_elsewhere = member.flags.process != member_.flags.process;
  if (is_elsewhere && member.device == member_.device && !has(kMpsEnabled)) {
    return failure(Code::unsupported,
                   "it has the same GPU in another process, and the processes do not use MPS");
  }
  if (member.staging_bytes != member_.staging_bytes) {
    return failure(Code::unsupported,
                   fmt::format("it has {} bytes of staging memory, and this rank {}",
                               member.staging_bytes, member_.staging_bytes));
  }
  peer.member = member;
  const auto* const flags = shared_->open(member.flags, MeshMemories::kFlagBytes, {});
  if (flags != nullptr) peer.flags = address(flags);
  const auto* const staging =
      flags == nullptr ? nullptr : shared_->open(member.staging, member_.staging_bytes, {});
  if (staging == nullptr) {
    return failure(Code::unsupported, "this GPU does not reach the memory of its GPU");
  }
  peer.staging = address(staging);
  return {};
}

/// Checks that the opened memory contains the nonce of the peer, and so is the peer's memory.
Status MeshPeers::check_nonce(const Peer& peer, CUstream stream) const {
  decltype(peer.member.nonce) found{};
  XYLEM_TRY(driver_.check(
      driver_.cuMemcpyAsync(address(found.data()), peer.flags + kNonce, found.size(), stream),
      "cuMemcpyAsync"));
  XYLEM_TRY(driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize"));
  if (found == peer.member.nonce) return {};
  return failure(Code::unsupported, "its memory is not on this host");
}

StreamBatch::Words MeshPeers::words() const noexcept {
  StreamBatch::Words words;
  words.stop = pointer_to<std::uint32_t>(own_.flags);
  for (std::uint32_t channel = 0; channel < kChannels; ++channel) {
    words.flags[channel] = pointer_to<std::uint32_t>(own_.flags + place_of_flag(0, channel));
  }
  words.ended = pointer_to<std::uint32_t>(own_.flags + kEnded);
  return words;
}

std::uint32_t* MeshPeers::flag_at(std::uint32_t peer, std::uint32_t channel) const noexcept {
  return pointer_to<std::uint32_t>(peers_[peer].flags + place_of_flag(rank_, channel));
}

PeerCall* MeshPeers::calls_written_to(std::uint32_t rank) const noexcept {
  return pointer_to<PeerCall>(peers_[rank].flags + kPeerCalls);
}

}  // namespace xylem::execution::cuda
