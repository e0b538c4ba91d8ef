// SPDX-License-Identifier: Apache-2.0
//
// PeerMemory: the memory of a peer, besides its segment, that this process can read. Memory that
// the peer shares (allocate_shared()) is mapped here. Other memory is copied from the peer's
// process with process_vm_readv(2), if the system permits that.
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
  /// This object sets `must_poll_socket` when the transport should check its socket.
  explicit PeerMemory(bool& must_poll_socket) noexcept : must_poll_socket_(&must_poll_socket) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() = default;

  /// Sets the peer's process. The id alone may name a wrong process: one in another pid name space,
  /// or one that was started later. So pull() succeeds only if the process contains `nonce` at the
  /// address `nonce_at`.
  void set_process(pid_t process, std::uint64_t nonce_at, const Nonce& nonce) noexcept;
  /// Whether this process may read the peer's process. The first call attempts to read it. No
  /// attempt is made earlier, since the system may log attempts that it denies.
  bool can_pull() noexcept;
  /// False if can_pull() has found that the peer's process cannot be read, or if its id is unknown.
  bool may_pull() const noexcept { return process_ != 0; }
  /// Maps an allocation of the peer, whose descriptor `fd` the peer has passed.
  Status map(std::uint32_t allocation, const UniqueFd& fd, std::uint64_t bytes);
  /// Call this when the peer has freed the allocation. Afterwards find() does not return it, and it
  /// is unmapped as soon as no view holds it.
  void forget(std::uint32_t allocation) noexcept;
  void forget_all() noexcept;

  /// Whether find() or pull() may succeed for this location. find() can still fail, since the
  /// descriptor of shared memory may not have arrived yet.
  bool can_read(const Location& location) noexcept;
  /// The address of `bytes` of shared memory in this process; null if they are not mapped.
  const std::byte* find(const Location& location, std::uint64_t bytes) const noexcept;
  /// Makes the transport check its socket in its next progress().
  void request_socket_poll() noexcept { *must_poll_socket_ = true; }
  void hold(const Location& location) noexcept;
  void release(const Location& location) noexcept;
  /// Copies from the peer's process. False on failure: the peer has ended, or a part of the range
  /// is not mapped there.
  bool pull(std::byte* target, std::uint64_t address, std::uint64_t bytes) const noexcept;

 private:
  struct Mapped {
    std::uint32_t allocation = 0;
    Mapping memory;
    std::uint32_t holders = 0;
    bool is_forgotten = false;
  };
  Mapped* find(std::uint32_t allocation) noexcept;
  void unmap_unused() noexcept;

  bool* must_poll_socket_;
  pid_t process_ = 0;  ///< 0: the process cannot be read.
  bool is_tried_ = false;
  std::uint64_t nonce_at_ = 0;
  Nonce nonce_{};
  std::vector<Mapped> mappings_;
};

}  // namespace xylem::transport::shm
