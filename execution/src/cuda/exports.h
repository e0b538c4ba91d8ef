// SPDX-License-Identifier: Apache-2.0
//
// Exports: the allocations of one rank that the ranks of a mesh in other processes have opened.
//
// The first call that uses an allocation sends its name to these peers (MeshMessage). Each opens
// the allocation, and answers with its address there. Once all have answered, peers can use buffers
// in the allocation. Until then, calls use staging memory. So no rank waits for another rank to
// open an allocation, except in a call that is captured, and the program of a call does not depend
// on it.
//
//   this rank                                     each peer in another process
//   call uses an allocation   ── share ────────►  opens it
//   notes the address         ◄──────── opened ──
//   (the allocation has been freed, or many others are used)
//   all calls that use it have ended ── closed ►  closes it
#pragma once

#include "cuda/driver.h"
#include "cuda/shared_memory.h"
#include "xylem/base/mutex.h"
#include "xylem/execution/mesh.h"
#include "xylem/execution/stream_program.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace xylem::execution::cuda {

class Exports {
 public:
  /// At most this many allocations are exported at a time. Buffers in others are copied to staging
  /// memory.
  static constexpr std::size_t kMost = 64;
  /// An allocation that has not been used in this many calls can be replaced by another one. So if
  /// calls use more than kMost allocations in turn, the first ones stay.
  static constexpr std::uint64_t kUnused = 256;

  /// An allocation that all peers have opened.
  struct Export {
    CUdeviceptr start = 0;
    /// at[p] is the address of the first byte in the process of rank p.
    std::array<CUdeviceptr, kMostMeshRanks> at{};
  };
  /// The calls of a mesh, for Exports to know when peers no longer use an allocation.
  struct Use {
    std::uint64_t call = 0;    ///< The number of the call that is being enqueued.
    std::uint64_t ended = 0;   ///< The number of the last call that has ended on all ranks.
    bool is_captured = false;  ///< The call may run again at any time.
  };

  explicit Exports(const Driver& driver) noexcept : driver_(driver) {}
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  ~Exports() = default;

  /// Names and opens allocations by `shared`, which outlives this object. are_elsewhere[p] is true
  /// if rank p is in another process. Call this before all other functions.
  void start(SharedMemory& shared, std::vector<bool> are_elsewhere);

  struct Found {
    /// Null if some peer cannot access the allocation. Valid until the call has ended.
    const Export* exported = nullptr;
    bool is_opening = false;  ///< Peers are opening the allocation.
  };
  /// Finds the allocation that contains these bytes. If peers do not know it, they are asked to
  /// open it, if that is possible. Only one thread at a time may call it.
  Found find(const std::byte* data, std::uint64_t bytes, const Use& use);
  /// Returns the messages for peers, and removes them. Any thread may call it.
  std::vector<MeshPost> take_posts();
  bool has_posts() const noexcept { return has_posts_.load(std::memory_order_acquire); }
  /// Handles a message of rank `from`. Only one thread at a time may call it.
  void on_message(std::uint32_t from, const MeshMessage& message);

 private:
  struct Known : Export {
    std::uint64_t bytes = 0;
    transport::DevicePlace place;
    std::uint32_t unanswered = 0;  ///< Number of peers that have not answered.
    bool is_refused = false;       ///< A peer cannot open it.
    bool is_freed = false;
    bool is_captured = false;
    std::uint64_t last_call = 0;

    /// No call uses it, except for captured calls, which must not be launched once it is freed.
    bool is_idle(const Use& use) const noexcept {
      return unanswered == 0 && last_call <= use.ended;
    }
  };
  using Table = std::map<std::uint64_t, Known>;  ///< By DeviceAllocation::number.

  bool is_known(std::uint64_t number) XYLEM_LOCKING(locks_excluded(mutex_));
  void add(const DeviceAllocation& found, const transport::DevicePlace& place, const Use& use)
      XYLEM_LOCKING(requires_capability(mutex_));
  void close(Table::iterator at) XYLEM_LOCKING(requires_capability(mutex_));
  bool make_room(const Use& use) XYLEM_LOCKING(requires_capability(mutex_));
  void post_to_all(const MeshMessage& message) XYLEM_LOCKING(requires_capability(mutex_));
  void post(std::uint32_t to, const MeshMessage& message)
      XYLEM_LOCKING(requires_capability(mutex_));

  const Driver& driver_;
  SharedMemory* shared_ = nullptr;
  std::vector<bool> are_elsewhere_;
  Mutex mutex_;
  Table known_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<MeshPost> posts_ XYLEM_LOCKING(guarded_by(mutex_));
  std::atomic<bool> has_posts_{false};
};

}  // namespace xylem::execution::cuda
