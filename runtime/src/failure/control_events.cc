// SPDX-License-Identifier: Apache-2.0
#include "failure/control_events.h"

#include "groups/group.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

namespace xylem::runtime {

void ControlEvents::on_peer_lost(std::uint32_t rank, std::string_view how) {
  post([=, this, how = std::string(how)](Token token) { handle_lost(token, rank, how); });
}

void ControlEvents::on_peer_left(std::uint32_t rank) {
  post([=, this](Token token) { handle_left(token, rank); });
}

void ControlEvents::on_message(std::uint32_t origin, std::span<const std::byte> message) {
  post([=, this, bytes = std::vector<std::byte>(message.begin(), message.end())](Token token) {
    watch_.on_message(token, origin, bytes);
  });
}

void ControlEvents::on_connected(PayloadConnection connection) {
  // std::function requires a copyable capture, and a PayloadConnection cannot be copied.
  const auto made = std::make_shared<PayloadConnection>(std::move(connection));
  post([=, this](Token token) {
    const std::uint32_t rank = made->rank;
    const Status adopted = context_.wires->adopt(token, std::move(*made));
    if (!adopted) handle_connection_failure(token, rank, adopted);
  });
}

void ControlEvents::on_connection_failed(std::uint32_t rank, const Status& why) {
  post([=, this](Token token) { handle_connection_failure(token, rank, why); });
}

void ControlEvents::post(Event event) {
  {
    const Lock lock(mutex_);
    events_.push_back(std::move(event));
  }
  has_events_.store(true, std::memory_order_relaxed);
}

WorkSource::Need ControlEvents::need() const noexcept {
  if (has_events_.load(std::memory_order_relaxed)) return Need::turn_now;
  return context_.failures.has_suspicions() ? Need::turns : Need::nothing;
}

unsigned ControlEvents::turn(Token token) {
  if (!has_events_.load(std::memory_order_relaxed)) return 0;
  std::vector<Event> events;
  {
    const Lock lock(mutex_);
    events.swap(events_);
    has_events_.store(false, std::memory_order_relaxed);
  }
  for (const Event& event : events) event(token);
  return 0;
}

void ControlEvents::tick(Token token, Clock::time_point now) {
  turn(token);
  for (const Suspicion& suspicion : context_.failures.take_confirmed(token, now)) {
    const Status& why = suspicion.why;
    if (const auto group = suspicion.group.lock()) {
      group->control(token).announce(why.code(), why.peer(), std::string(why.message()));
    }
  }
}

void ControlEvents::on_link_lost(std::uint32_t world_rank, const Status& why) {
  suspect_in_all(context_.progress.assert_held(), world_rank,
                 failure(why.code(), fmt::format("rank {} lost its connection to rank {} ({}): {}",
                                                 context_.rank(), world_rank, name(why.code()),
                                                 why.message())));
}

void ControlEvents::handle_left(Token token, std::uint32_t world_rank) {
  context_.failures.note_left(token, world_rank);
  for (const auto& group : context_.registry.groups()) {
    const auto rank = group->spec().rank_of(world_rank);
    if (rank) group->control(token).messages().note_left(*rank);
  }
  context_.wires->close_unconnected(token, world_rank);
}

void ControlEvents::handle_connection_failure(Token token,
                                              std::uint32_t world_rank,
                                              const Status& why) {
  suspect_in_all(token, world_rank,
                 failure(why.code(), fmt::format("rank {} cannot be connected to rank {}: {}",
                                                 context_.rank(), world_rank, why.message())));
  context_.wires->close_unconnected(token, world_rank);
}

void ControlEvents::handle_lost(Token token, std::uint32_t world_rank, std::string_view how) {
  if (!context_.failures.lost(token, world_rank).is_ok()) return;
  const Status why = failure(Code::peer_lost,
                             fmt::format("rank {} on {} was lost: {}", world_rank,
                                         context_.wires->hosts().peers()[world_rank].host, how),
                             world_rank);
  context_.failures.note_lost(token, world_rank, why);
  context_.logger.error(why.message());
  for (const auto& group : context_.registry.groups()) {
    if (group->spec().rank_of(world_rank)) group->control(token).poison(why);
  }
  context_.wires->close(token, world_rank);
}

/// Suspects the rank in all groups that contain it, even in a group in which no call waits for this
/// connection: messages on the connection are lost.
void ControlEvents::suspect_in_all(Token token, std::uint32_t world_rank, const Status& why) {
  for (const auto& group : context_.registry.groups()) {
    if (!group->spec().rank_of(world_rank)) continue;
    context_.failures.suspect(token, group,
                              failure(why.code(), std::string(why.message()), world_rank),
                              Suspicion::Leaver::is_excused);
  }
}

}  // namespace xylem::runtime
