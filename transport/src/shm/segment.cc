// SPDX-License-Identifier: Apache-2.0
#include "shm/segment.h"

#include "shm/memory_left.h"
#include "xylem/base/file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kMagic = 0x78796c656d2d3033;  // "xylem-03": changes with the layout.
constexpr std::uint64_t kPage = 4096;
// The size of a small slot: one page of payload, and one line for a header before the payload.
constexpr std::uint32_t kSmallBytes = 4096 + kLine;
constexpr std::uint32_t kLargestSlot = 64 << 10;
constexpr std::uint32_t kSmallestSlot = 8 << 10;
constexpr std::uint64_t kUsualBytes = 2 << 20;
constexpr std::uint32_t kMostSlots = 1 << 16;  // The range of Entry::slot.
// With this many channels, the minimum number of slots of one size is kMostSlots / 2
// (plan_geometry()).
constexpr std::uint32_t kMostChannels = (1 << 14) - 1;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// Requests pages of 2 MiB, which save TLB entries, if the system provides them for shared memory
/// (shmem_enabled). The kernel chooses the page size at the first write, so this function makes the
/// kernel populate the memory.
void try_huge_pages(std::byte* memory, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  constexpr std::uint64_t kHugePage = 2 << 20;
  if (bytes >= kHugePage && madvise(memory, bytes, MADV_HUGEPAGE) == 0) {
    (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
  }
#endif
}

Status system_error(Code code, std::string_view what) {
  return failure(code, fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

}  // namespace

std::uint64_t Geometry::credits_offset() const noexcept { return round_up(sizeof(Header), kLine); }

std::uint64_t Geometry::withdrawals_offset() const noexcept {
  return credits_offset() + std::uint64_t{channels} * sizeof(Credit);
}

std::uint64_t Geometry::ring_offset(std::uint32_t channel) const noexcept {
  const std::uint64_t rings =
      round_up(withdrawals_offset() + std::uint64_t{channels} * sizeof(Withdrawal), kPage);
  return rings + std::uint64_t{channel} * kEntries * sizeof(Entry);
}

std::uint64_t Geometry::slot_offset(std::uint32_t slot) const noexcept {
  const std::uint64_t slots = round_up(ring_offset(channels), kPage);
  const std::uint64_t small = std::min(slot, small_slots);
  if (slot < small_slots) return slots + small * small_bytes;
  return slots + round_up(small * small_bytes, kPage) + (slot - small) * large_bytes;
}

Result<Geometry> plan_geometry(std::uint32_t channels, std::uint64_t bytes) {
  // Of each slot size, one slot is reserved for every channel, and at least one more must be shared
  // by all channels (SlotPool). At least twice this number is provided.
  Geometry geometry{channels, 0, kSmallBytes, 0, kLargestSlot};
  // Up to one page of padding lies between the two sizes.
  const std::uint64_t fixed = geometry.slot_offset(0) + kPage;
  const std::uint64_t least = 2 * (std::uint64_t{channels} + 1);
  const auto needed = [&](std::uint64_t large) { return fixed + least * (kSmallBytes + large); };
  if (bytes == 0) bytes = std::max(kUsualBytes, needed(2 * kSmallestSlot));
  while (geometry.large_bytes > kSmallestSlot && needed(geometry.large_bytes) > bytes) {
    geometry.large_bytes /= 2;
  }
  if (channels == 0 || channels > kMostChannels || needed(kSmallestSlot) > bytes) {
    return failure(Code::exhausted,
                   fmt::format("{} bytes of shared memory do not serve {} channels, 1 to {} of "
                               "which need {} bytes: allow more",
                               bytes, channels, kMostChannels, needed(kSmallestSlot)));
  }
  const std::uint64_t room = bytes - fixed;
  geometry.small_slots = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(room / 8 / kSmallBytes, least, kMostSlots / 2));
  geometry.large_slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      (room - std::uint64_t{geometry.small_slots} * kSmallBytes) / geometry.large_bytes,
      kMostSlots / 2));
  return geometry;
}

Result<SealedMemory> make_sealed_memory(std::uint64_t bytes) {
  // Without this check, allocating too much would make the kernel reclaim pages and finally kill
  // processes.
  if (const MemoryLeft left = memory_left(); bytes > left.bytes) {
    return failure(Code::exhausted,
                   fmt::format("{} bytes of memory are more than the {} that {} has left: ask for "
                               "less, or raise that limit",
                               bytes, left.bytes, left.limit));
  }
  UniqueFd fd(memfd_create("xylem", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    const bool are_used_up = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return system_error(are_used_up ? Code::exhausted : Code::unsupported, "memfd_create");
  }
  const auto size = static_cast<off_t>(bytes);
  {
    const WriteSignalsBlocked blocked;  // The limit on file sizes applies to a memfd, too.
    if (ftruncate(fd.get(), size) != 0) {
      return failure(Code::exhausted,
                     fmt::format("shared memory, which the system counts as a file, cannot have {} "
                                 "bytes: {}",
                                 bytes, write_error_text(errno)));
    }
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error(Code::exhausted, "mmap");
  SealedMemory made{std::move(fd), Mapping(static_cast<std::byte*>(memory), Unmap{bytes})};
  try_huge_pages(static_cast<std::byte*>(memory), bytes);
  // All pages are allocated here, so that a shortage of memory is an error and not SIGBUS at a
  // later access.
  if (fallocate(made.fd.get(), 0, 0, size) != 0) {
    return system_error(Code::exhausted, fmt::format("no {} bytes: free some memory", bytes));
  }
  if (fcntl(made.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return system_error(Code::unsupported, "sealing");
  }
#ifdef F_SEAL_FUTURE_WRITE
  // This seal exists since Linux 5.1. On older kernels peers are able to write to the memory, but
  // Xylem never does.
  (void)fcntl(made.fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
#endif
  return made;
}

void Unmap::operator()(std::byte* memory) const noexcept { munmap(memory, bytes); }

Result<Mapping> map_of_peer(const UniqueFd& fd, std::uint64_t bytes) {
  struct stat facts {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  const bool is_sound = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && bytes > 0 &&
                        fstat(fd.get(), &facts) == 0 &&
                        std::cmp_greater_equal(facts.st_size, bytes);
  if (!is_sound) {
    return failure(Code::mismatch,
                   fmt::format("its file is smaller than {} bytes, or could shrink", bytes));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error(Code::exhausted, "mmap");
  return Mapping(static_cast<std::byte*>(memory), Unmap{bytes});
}

Result<Segment> Segment::create(const Geometry& geometry, const Nonce& nonce) {
  XYLEM_TRY(SealedMemory made, make_sealed_memory(geometry.bytes()));
  Segment segment(std::move(made.fd), std::move(made.memory), geometry);
  // All other parts of the segment are zero, which is their initial state.
  Header* header = std::construct_at(&segment.header());
  header->magic = kMagic;
  header->nonce = nonce;
  header->geometry = geometry;
  return segment;
}

Result<Segment> Segment::open(UniqueFd fd, const Nonce& nonce) {
  struct stat facts {};
  const bool has_size = fstat(fd.get(), &facts) == 0;
  const auto bytes = static_cast<std::uint64_t>(has_size ? facts.st_size : 0);
  XYLEM_TRY(Mapping memory, map_of_peer(fd, std::max<std::uint64_t>(bytes, sizeof(Header))));
  const auto& header = *reinterpret_cast<const Header*>(memory.get());
  const Geometry geometry = header.geometry;
  const bool is_sound = header.magic == kMagic && header.nonce == nonce &&
                        geometry.channels <= kMostChannels && geometry.slots() <= kMostSlots &&
                        geometry.bytes() == bytes;
  if (!is_sound) {
    return failure(Code::mismatch,
                   "shared memory: a peer's segment has another nonce, or is of another build");
  }
  return Segment(std::move(fd), std::move(memory), geometry);
}

}  // namespace xylem::transport::shm
