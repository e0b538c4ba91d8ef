// SPDX-License-Identifier: Apache-2.0
#include "shm/peer_memory.h"

#include "xylem/base/check.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace xylem::transport::shm {

PeerMemory::~PeerMemory() {
  while (!mappings_.empty()) unmap(mappings_.back());
}

// ---- shared memory ----

Status PeerMemory::map(std::uint32_t allocation, const UniqueFd& fd, std::uint64_t bytes) {
  struct stat facts {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  const bool is_sound = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
                        fstat(fd.get(), &facts) == 0 && bytes > 0 &&
                        std::cmp_greater_equal(facts.st_size, bytes);
  if (!is_sound || find(allocation) != nullptr) {
    return failure(Code::mismatch, fmt::format("allocation {} of {} bytes is not what was said of "
                                               "it",
                                               allocation, bytes));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return failure(Code::exhausted, fmt::format("{} bytes that a peer shares cannot be mapped: {}",
                                                bytes, std::strerror(errno)));
  }
  mappings_.push_back({allocation, static_cast<const std::byte*>(memory), bytes});
  return {};
}

PeerMemory::Mapping* PeerMemory::find(std::uint32_t allocation) noexcept {
  const auto at = std::ranges::find(mappings_, allocation, &Mapping::allocation);
  return at == mappings_.end() ? nullptr : &*at;
}

void PeerMemory::unmap(Mapping& mapping) noexcept {
  munmap(const_cast<std::byte*>(mapping.memory), mapping.bytes);
  std::swap(mapping, mappings_.back());
  mappings_.pop_back();
}

void PeerMemory::forget(std::uint32_t allocation) noexcept {
  Mapping* mapping = find(allocation);
  if (mapping == nullptr) return;
  mapping->is_forgotten = true;
  if (mapping->holders == 0) unmap(*mapping);
}

void PeerMemory::forget_all() noexcept {
  for (std::size_t i = mappings_.size(); i-- > 0;) {
    mappings_[i].is_forgotten = true;
    if (mappings_[i].holders == 0) unmap(mappings_[i]);
  }
}

const std::byte* PeerMemory::find(const Location& location, std::uint64_t bytes) const noexcept {
  const auto at = std::ranges::find(mappings_, location.allocation, &Mapping::allocation);
  if (at == mappings_.end() || at->is_forgotten) return nullptr;
  const bool is_within = location.at <= at->bytes && bytes <= at->bytes - location.at;
  return is_within ? at->memory + location.at : nullptr;
}

void PeerMemory::hold(const Location& location) noexcept { ++find(location.allocation)->holders; }

void PeerMemory::release(const Location& location) noexcept {
  Mapping* mapping = find(location.allocation);
  XYLEM_CHECK(mapping != nullptr && mapping->holders > 0, location.allocation);
  if (--mapping->holders == 0 && mapping->is_forgotten) unmap(*mapping);
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
