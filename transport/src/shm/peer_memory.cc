// SPDX-License-Identifier: Apache-2.0
#include "shm/peer_memory.h"

#include "xylem/base/check.h"

#include <fmt/format.h>

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <utility>

namespace xylem::transport::shm {

// ---- shared memory ----

Status PeerMemory::map(std::uint32_t allocation, const UniqueFd& fd, std::uint64_t bytes) {
  if (find(allocation) != nullptr) {
    return failure(Code::mismatch, fmt::format("allocation {} was passed twice", allocation));
  }
  XYLEM_TRY(Mapping memory, map_of_peer(fd, bytes));
  mappings_.push_back({allocation, std::move(memory)});
  return {};
}

PeerMemory::Mapped* PeerMemory::find(std::uint32_t allocation) noexcept {
  const auto at = std::ranges::find(mappings_, allocation, &Mapped::allocation);
  return at == mappings_.end() ? nullptr : &*at;
}

void PeerMemory::unmap_unused() noexcept {
  std::erase_if(mappings_,
                [](const Mapped& mapped) { return mapped.is_forgotten && mapped.holders == 0; });
}

void PeerMemory::forget(std::uint32_t allocation) noexcept {
  if (Mapped* mapped = find(allocation)) mapped->is_forgotten = true;
  unmap_unused();
}

void PeerMemory::forget_all() noexcept {
  for (Mapped& mapped : mappings_) mapped.is_forgotten = true;
  unmap_unused();
}

const std::byte* PeerMemory::find(const Location& location, std::uint64_t bytes) const noexcept {
  const auto at = std::ranges::find(mappings_, location.allocation, &Mapped::allocation);
  if (at == mappings_.end() || at->is_forgotten) return nullptr;
  const std::uint64_t size = at->memory.get_deleter().bytes;
  const bool is_within = location.at <= size && bytes <= size - location.at;
  return is_within ? at->memory.get() + location.at : nullptr;
}

void PeerMemory::hold(const Location& location) noexcept { ++find(location.allocation)->holders; }

void PeerMemory::release(const Location& location) noexcept {
  Mapped* mapped = find(location.allocation);
  XYLEM_CHECK(mapped != nullptr && mapped->holders > 0, location.allocation);
  if (--mapped->holders == 0 && mapped->is_forgotten) unmap_unused();
}

bool PeerMemory::can_read(const Location& location) noexcept {
  switch (location.where) {
    case Location::Where::nowhere:
    case Location::Where::device: return false;
    case Location::Where::shared: return true;
    case Location::Where::process: return can_pull();
  }
  return false;
}

// ---- the process ----

void PeerMemory::set_process(pid_t process, std::uint64_t nonce_at, const Nonce& nonce) noexcept {
  process_ = process;
  nonce_at_ = nonce_at;
  nonce_ = nonce;
}

bool PeerMemory::can_pull() noexcept {
  // pull() always reads and compares the nonce, so zero bytes are enough for a trial.
  if (process_ != 0 && !std::exchange(is_tried_, true) && !pull(nullptr, 0, 0)) process_ = 0;
  return process_ != 0;
}

bool PeerMemory::pull(std::byte* target,
                      std::uint64_t address,
                      std::uint64_t bytes) const noexcept {
  Nonce nonce{};
  const std::array<iovec, 2> here{iovec{nonce.data(), sizeof nonce}, iovec{target, bytes}};
  // These are addresses in another process.
  const auto at = [](std::uint64_t remote) {
    return reinterpret_cast<void*>(remote);  // NOLINT(performance-no-int-to-ptr)
  };
  const std::array<iovec, 2> there{iovec{at(nonce_at_), sizeof nonce}, iovec{at(address), bytes}};
  const ssize_t got =
      process_vm_readv(process_, here.data(), here.size(), there.data(), there.size(), 0);
  return std::cmp_equal(got, sizeof nonce + bytes) && nonce == nonce_;
}

}  // namespace xylem::transport::shm
