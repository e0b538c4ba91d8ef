// SPDX-License-Identifier: Apache-2.0
//
// PeerMemory: the memory of a peer that can be read besides its segment. Memory that the peer
// shares (allocate_shared()) is mapped here; other memory is copied from its process, where the
// system permits that (process_vm_readv).
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
  /// `must_poll_socket` is set when the transport should look at its socket.
  explicit PeerMemory(bool& must_poll_socket) noexcept : must_poll_socket_(&must_poll_socket) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() = default;

  /// Sets the peer's process. pull() succeeds only if this process has the nonce at `nonce_at`: the
  /// id may name a process in another name space, or one that was started later.
  void set_process(pid_t process, std::uint64_t nonce_at, const Nonce& nonce) noexcept;
  /// Whether the process can be read. The first call tries it. It is not tried earlier, since the
  /// system may log a denied attempt.
  bool can_pull() noexcept;
  /// False if the process is known not to be readable.
  bool may_pull() const noexcept { return process_ != 0; }
  /// Maps an allocation of the peer from the descriptor that it has passed.
  Status map(std::uint32_t allocation, const UniqueFd& fd, std::uint64_t bytes);
  /// Call this when the peer has freed the allocation. find() does not return it any more, and it
  /// is unmapped as soon as no view holds it.
  void forget(std::uint32_t allocation) noexcept;
  void forget_all() noexcept;

  /// Whether find() or pull() may succeed for this location. find() can still fail, since the
  /// descriptor of shared memory may not have arrived yet.
  bool can_read(const Location& location) noexcept;
  /// The address of `bytes` of shared memory here; null if they are not mapped.
  const std::byte* find(const Location& location, std::uint64_t bytes) const noexcept;
  /// Makes the transport look at its socket in its next progress().
  void request_socket_poll() noexcept { *must_poll_socket_ = true; }
  void hold(const Location& location) noexcept;
  void release(const Location& location) noexcept;
  /// Copies from the peer's process. False if that fails: the peer has ended, or a part of the
  /// range is not mapped there.
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
