// SPDX-License-Identifier: Apache-2.0
//
// Inbox: what other threads leave for the holder of the progress token: submitted operations, what
// the control plane has received, and the tick of the clock. Any thread may put something in; only
// the token holder takes it out, at its next turn.
#pragma once

#include "bootstrap/control_plane.h"
#include "bootstrap/encounter.h"
#include "calls/operation.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// One event of the control plane: a call of a function of ControlListener.
struct ControlEvent {
  enum class Kind : std::uint8_t { message, lost, left, met, unmet } kind = Kind::message;
  std::uint32_t rank = 0;
  std::string text;                ///< For a lost rank: how its death was noticed.
  std::vector<std::byte> message;  ///< The message of on_message().
  Encounter encounter{};           ///< The connection of on_met().
  Status why{};                    ///< The reason of on_unmet().
};

class Inbox final : public ControlListener {
 public:
  // Any thread may call these functions:
  void submit(Operation& operation) noexcept;
  void set_tick_due() noexcept { tick_due_.store(true, std::memory_order_relaxed); }
  void on_peer_lost(std::uint32_t rank, std::string_view how) override;
  void on_peer_left(std::uint32_t rank) override;
  void on_message(std::uint32_t origin, std::span<const std::byte> message) override;
  void on_met(Encounter encounter) override;
  void on_unmet(std::uint32_t rank, const Status& why) override;

  bool is_empty() const noexcept {
    return submitted_.load(std::memory_order_relaxed) == nullptr && !has_events() && !is_tick_due();
  }
  bool has_submitted() const noexcept {
    return submitted_.load(std::memory_order_seq_cst) != nullptr ||
           is_launching_.load(std::memory_order_seq_cst);
  }
  bool has_events() const noexcept { return has_events_.load(std::memory_order_relaxed); }
  bool is_tick_due() const noexcept { return tick_due_.load(std::memory_order_relaxed); }
  /// True if there is something that a token holder must handle before it sleeps. Ordered after the
  /// holder's announcement of its sleep.
  bool has_work_for_sleeper() const noexcept {
    return submitted_.load(std::memory_order_seq_cst) != nullptr ||
           has_events_.load(std::memory_order_seq_cst);
  }

  // These functions are for the token holder:
  /// The submitted operations, oldest first, as a list linked by OperationLists::queue_next; null
  /// if there are none. note_launched() must follow.
  Operation* take_submitted() noexcept;
  /// Call this when the operations that were taken are counted as pending: has_submitted() then no
  /// longer reports them.
  void note_launched() noexcept {
    if (is_launching_.load(std::memory_order_relaxed)) {
      is_launching_.store(false, std::memory_order_release);
    }
  }
  std::vector<ControlEvent> take_events();
  bool take_tick() noexcept { return is_tick_due() && tick_due_.exchange(false); }

 private:
  void post(ControlEvent event);

  std::atomic<Operation*> submitted_{nullptr};  ///< The submitted operations, newest first.
  /// Some operations were taken that do not count as pending yet.
  std::atomic<bool> is_launching_{false};
  std::atomic<bool> tick_due_{false};
  std::atomic<bool> has_events_{false};
  std::mutex events_mutex_;
  std::vector<ControlEvent> events_;
};

}  // namespace xylem::runtime
