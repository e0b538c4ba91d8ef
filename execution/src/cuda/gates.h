// SPDX-License-Identifier: Apache-2.0
//
// Gates: tickets by which calls wait for streams of the application, and streams wait for calls.
// Each gate has a word of pinned memory, which the CPU and streams read and write. A gate is open
// when its word has reached the generation of the gate. Words only grow, so a stream that reaches
// its wait late still finds the gate open.
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"
#include "xylem/execution/ticket.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::execution::cuda {

/// The gates of one device. Any thread may call these functions. The context of the device must be
/// current where a function takes a stream.
class Gates {
 public:
  static constexpr std::uint32_t kMost = 4096;  ///< The most gates that exist at a time.

  /// `words` points to kMost words of pinned memory, all zero. `words_on_device` is the address of
  /// the same memory for the device.
  Gates(const Driver& driver, std::uint64_t* words, CUdeviceptr words_on_device);
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;
  ~Gates() = default;

  /// Makes a gate that opens when `stream` has completed all work that has been enqueued on it so
  /// far.
  Result<Ticket> after(CUstream stream);
  /// A gate that opens when a stream writes `value` to `word`.
  struct ByWrite {
    Ticket gate;
    CUdeviceptr word = 0;
    std::uint64_t value = 0;
  };
  /// Makes a gate that opens by a write, which the caller enqueues exactly once. The gate then
  /// needs forget().
  Result<ByWrite> by_write();
  /// Releases a gate of by_write() whose write will not be enqueued.
  void cancel(const ByWrite& gate) noexcept;
  /// Makes a gate that open() opens. Work that is enqueued on `stream` after this call waits for
  /// the gate.
  Result<Ticket> before(CUstream stream);

  bool is_open(Ticket gate) const noexcept;
  void open(Ticket gate) noexcept;
  /// Releases a gate of after() or by_write(), to which nobody refers afterwards. Its word is
  /// reused when the gate has opened.
  void forget(Ticket gate) noexcept;

  /// Whether any stream of this process may be waiting for a gate or for a CountedWait, of any
  /// device and job. Functions of BlockingDriver could then block.
  static bool are_streams_waiting() noexcept { return waited_for > 0; }
  /// Whether any gate has been made.
  bool were_made() noexcept;
  static bool is_gate(Ticket ticket) noexcept { return ticket.queue == kQueue; }

 private:
  static constexpr std::uint32_t kQueue = ~std::uint32_t{0};
  friend class CountedWait;
  friend class NoStreamWaits;
  /// Each NoStreamWaits holds this mutex while it exists. begin_to_wait() locks it for a moment.
  inline static Mutex quiet;
  /// Number of gates of this process for which streams wait, plus the number of CountedWaits that
  /// have begun.
  inline static std::atomic<std::uint32_t> waited_for{0};

  static void begin_to_wait() {
    const Lock lock(quiet);
    ++waited_for;
  }

  std::atomic_ref<std::uint64_t> word(std::uint32_t slot) const noexcept {
    return std::atomic_ref(words_[slot]);
  }
  CUdeviceptr word_on_device(std::uint32_t slot) const noexcept {
    return words_on_device_ + slot * sizeof(std::uint64_t);
  }
  static Ticket ticket(std::uint32_t slot, std::uint64_t generation) noexcept {
    return {generation * kMost + slot, kQueue};
  }
  static std::uint32_t slot_of(Ticket gate) noexcept {
    return static_cast<std::uint32_t>(gate.number % kMost);
  }
  static std::uint64_t generation_of(Ticket gate) noexcept { return gate.number / kMost; }
  Status check_not_captured(CUstream stream) const;
  /// Takes a free slot, and begins its next generation. The slot belongs to the caller until
  /// give_back() or forget().
  Result<std::uint32_t> take() XYLEM_LOCKING(locks_excluded(mutex_));
  void give_back(std::uint32_t slot) noexcept XYLEM_LOCKING(locks_excluded(mutex_));

  const Driver& driver_;
  std::uint64_t* const words_;
  const CUdeviceptr words_on_device_;
  /// Not held during calls of the driver. Such a call may block until a stream has room for more
  /// work, and the stream may be waiting for a gate.
  Mutex mutex_;
  /// generations_[slot] is the generation of the slot's last gate. Only the owner of the slot
  /// changes it.
  std::vector<std::uint64_t> generations_ = std::vector<std::uint64_t>(kMost);
  /// Slots [0, used_) have been used before.
  std::uint32_t used_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
  std::vector<std::uint32_t> free_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Slots of gates that were released by forget(), and whose words may not have been written yet.
  std::vector<std::uint32_t> retired_ XYLEM_LOCKING(guarded_by(mutex_));
};

/// Counts a wait of streams for something else than a gate, such as the calls of a mesh. From
/// begin() until the end of the wait, Gates::are_streams_waiting() is true. Any thread may call it.
class CountedWait {
 public:
  void begin() {
    const Lock lock(mutex_);
    if (!std::exchange(is_counted_, true)) Gates::begin_to_wait();
  }
  /// Ends the wait if it has begun and has_ended() returns true. While has_ended() runs, begin()
  /// blocks in other threads.
  template <class HasEnded>
  void end_if(HasEnded&& has_ended) {
    const Lock lock(mutex_);
    if (!is_counted_ || !has_ended()) return;
    is_counted_ = false;
    --Gates::waited_for;
  }

 private:
  Mutex mutex_;
  bool is_counted_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
};

/// While an object of this class exists, no stream of this process waits for a call of Xylem: a
/// thread that is about to make a stream wait blocks. The object permits the use of BlockingDriver
/// (Driver::blocking()).
class NoStreamWaits {
 public:
  /// Empty if a stream waits, if another thread holds a NoStreamWaits, or if another thread is
  /// about to make a stream wait. Never blocks.
  static std::optional<NoStreamWaits> try_acquire() {
    TryLock lock(Gates::quiet);
    if (!lock || Gates::are_streams_waiting()) return std::nullopt;
    return NoStreamWaits(std::move(lock));
  }

 private:
  explicit NoStreamWaits(TryLock lock) noexcept : lock_(std::move(lock)) {}

  TryLock lock_;
};

}  // namespace xylem::execution::cuda
