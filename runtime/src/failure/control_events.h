// SPDX-License-Identifier: Apache-2.0
//
// ControlEvents: handles what the control plane and the wires report about other ranks: deaths,
// farewells, messages and connections. The progress thread posts the events of the control plane;
// the token holder handles them in its turn.
#pragma once

#include "bootstrap/control_plane.h"
#include "bootstrap/payload_connection.h"
#include "context.h"
#include "failure/watch.h"
#include "progress/token.h"
#include "progress/work_source.h"
#include "wires/wires.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::runtime {

class ControlEvents final : public ControlListener, public WorkSource, public WiresListener {
 public:
  /// The arguments outlive this object.
  ControlEvents(Context& context, Watch& watch) : context_(context), watch_(watch) {}

  // Any thread may call these functions:
  void on_peer_lost(std::uint32_t rank, std::string_view how) override;
  void on_peer_left(std::uint32_t rank) override;
  void on_message(std::uint32_t origin, std::span<const std::byte> message) override;
  void on_connected(PayloadConnection connection) override;
  void on_connection_failed(std::uint32_t rank, const Status& why) override;
  Need need() const noexcept override;

  unsigned turn(Token token) override;
  /// Handles the events, and announces each failure of a wire that the control plane has not
  /// explained in time (failure_detector.h).
  void tick(Token token, Clock::time_point now) override;
  void on_link_lost(std::uint32_t world_rank, const Status& why) override;

 private:
  using Event = std::function<void(Token)>;

  void post(Event event);
  void handle_lost(Token token, std::uint32_t world_rank, std::string_view how);
  void handle_left(Token token, std::uint32_t world_rank);
  void handle_connection_failure(Token token, std::uint32_t world_rank, const Status& why);
  void suspect_in_all(Token token, std::uint32_t world_rank, const Status& why);

  Context& context_;
  Watch& watch_;
  std::atomic<bool> has_events_{false};
  Mutex mutex_;
  std::vector<Event> events_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
