// SPDX-License-Identifier: Apache-2.0
//
// Gates: tickets between streams of the user and calls, in both directions. A gate has one word of
// pinned memory, which the CPU and streams see. A gate is open when its word has reached the gate's
// generation. Words only grow, so a wait that comes late still sees an open gate.
#pragma once

#include "cuda/driver.h"
#include "xylem/execution/compute.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace xylem::execution::cuda {

/// The gates of one device. All threads may call it. The context of
/// the device must be current where a function takes a stream.
class Gates {
 public:
  static constexpr std::uint32_t kMost = 4096;  ///< Gates at a time.

  /// `words` are kMost words of pinned memory, all zero, which `words_on_device` names to the
  /// device.
  Gates(const Driver& driver, std::uint64_t* words, CUdeviceptr words_on_device);
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  /// A gate that opens when `stream` has done everything that is enqueued on it so far.
  Result<Ticket> after(CUstream stream);
  /// A gate that open() opens. What is enqueued on `stream` after this call waits for it.
  Result<Ticket> before(CUstream stream);

  bool is_open(Ticket gate) const noexcept;
  void open(Ticket gate) noexcept;
  /// Nobody refers to the gate any more. Its word is used again once it is open.
  void forget(Ticket gate) noexcept;

  /// Whether any stream may wait for a gate, of whichever device and job of this process. Some
  /// calls of the driver wait for all streams.
  static bool are_streams_waiting() noexcept { return waited_for_ > 0; }
  /// Whether there was any gate.
  bool were_made() noexcept;
  static bool is_gate(Ticket ticket) noexcept { return ticket.queue == kQueue; }

 private:
  static constexpr std::uint32_t kQueue = ~std::uint32_t{0};
  friend class CountedWait;
  friend class NoStreamWaits;
  /// A NoStreamWaits holds it exclusively, begin_to_wait() for a moment.
  inline static std::shared_mutex quiet_;
  /// Gates of this process for which streams wait, and each CountedWait that has begun.
  inline static std::atomic<std::uint32_t> waited_for_{0};

  static void begin_to_wait() {
    const std::shared_lock lock(quiet_);
    ++waited_for_;
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
  /// A slot with its next generation. It belongs to the caller until it is returned.
  Result<std::uint32_t> take();
  void give_back(std::uint32_t slot) noexcept;
  /// A gate that nobody has seen is given up, since a stream did not take it.
  Status give_up(std::uint32_t slot, CUresult why, std::string_view function);

  const Driver& driver_;
  std::uint64_t* const words_;
  const CUdeviceptr words_on_device_;
  /// Not held while the driver is called, since a call may wait for room in a stream that waits for
  /// a gate.
  std::mutex mutex_;
  /// Of each slot. An element belongs to who took the slot.
  std::vector<std::uint64_t> generations_ = std::vector<std::uint64_t>(kMost);
  std::uint32_t used_ = 0;              // «mutex_» Slots [0, used_) have been taken before.
  std::vector<std::uint32_t> free_;     // «mutex_»
  std::vector<std::uint32_t> retired_;  // «mutex_» Forgotten before they were open.
};

/// Something else than a gate for which streams may wait, such as the calls of a mesh. Until it
/// ends, Gates::are_streams_waiting() is true. All threads may call it.
class CountedWait {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_counted_, true)) Gates::begin_to_wait();
  }
  /// Asks `has_ended` if it has begun. No other thread lets it begin meanwhile.
  template <class HasEnded>
  void end_if(HasEnded&& has_ended) {
    const std::lock_guard lock(mutex_);
    if (!is_counted_ || !has_ended()) return;
    is_counted_ = false;
    --Gates::waited_for_;
  }

 private:
  std::mutex mutex_;
  bool is_counted_ = false;  // «mutex_»
};

/// While this exists, no stream of this process waits for a call of Xylem: a thread that would let
/// one wait blocks. It gives access to the functions of BlockingDriver.
class NoStreamWaits {
 public:
  /// Empty if a stream waits, and while another thread holds such a value or lets a stream wait at
  /// this moment. Never blocks.
  static std::optional<NoStreamWaits> try_acquire() {
    std::unique_lock lock(Gates::quiet_, std::try_to_lock);
    if (!lock.owns_lock() || Gates::are_streams_waiting()) return std::nullopt;
    return NoStreamWaits(std::move(lock));
  }

 private:
  explicit NoStreamWaits(std::unique_lock<std::shared_mutex> lock) noexcept
      : lock_(std::move(lock)) {}

  std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace xylem::execution::cuda
