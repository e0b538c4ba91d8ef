// SPDX-License-Identifier: Apache-2.0
//
// What can be read of a peer besides its segment: memory that it shares (allocate_shared()), which
// is mapped here, and its process, as far as the system allows it (process_vm_readv).
#pragma once

#include "shm/segment.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class PeerMemory {
 public:
  /// `wants_look` is set when somebody asks to look at the door.
  explicit PeerMemory(bool& wants_look) noexcept : wants_look_(&wants_look) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  /// The process is to be read if what lies at `nonce_at` in it is the nonce: a number alone may
  /// mean another in another name space, or one that came later.
  void set_process(pid_t process, std::uint64_t nonce_at, const Nonce& nonce) noexcept;
  /// Tries it at the first call: where that is denied, it may be noted by somebody.
  bool can_pull() noexcept;
  /// As far as it is known.
  bool may_pull() const noexcept { return process_ != 0; }
  /// Maps an allocation of the peer, a descriptor of which it has handed over.
  Status map(std::uint32_t allocation, const UniqueFd& fd, std::uint64_t bytes);
  /// The peer has given it back; it stays mapped here while it is held.
  void forget(std::uint32_t allocation) noexcept;
  void forget_all() noexcept;

  /// Whether it is worth trying: of shared memory the descriptor may be still to come.
  bool can_read(const Location& location) noexcept;
  /// So many bytes of shared memory; null if they are not mapped here, or not that many.
  const std::byte* find(const Location& location, std::uint64_t bytes) const noexcept;
  /// The transport looks at the door before it calls again.
  void look() noexcept { *wants_look_ = true; }
  void hold(const Location& location) noexcept;
  void release(const Location& location) noexcept;
  /// Copies from the peer's process; false if that fails, for one of them has ended, or a part of
  /// it is no memory (any more).
  bool pull(std::byte* target, std::uint64_t address, std::uint64_t bytes) const noexcept;

 private:
  struct Mapping {
    std::uint32_t allocation = 0;
    const std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t holders = 0;
    bool is_forgotten = false;
  };
  Mapping* find(std::uint32_t allocation) noexcept;
  void unmap(Mapping& mapping) noexcept;

  bool* wants_look_;
  pid_t process_ = 0;  ///< 0: not to be read.
  bool is_tried_ = false;
  std::uint64_t nonce_at_ = 0;
  Nonce nonce_{};
  std::vector<Mapping> mappings_;
};

}  // namespace xylem::transport::shm
