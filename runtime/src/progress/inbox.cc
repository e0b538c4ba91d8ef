// SPDX-License-Identifier: Apache-2.0
#include "progress/inbox.h"

#include <utility>

namespace xylem::runtime {

void Inbox::submit(Operation& operation) noexcept {
  Operation* head = submitted_.load(std::memory_order_relaxed);
  do {
    operation.lists.queue_next = head;
  } while (!submitted_.compare_exchange_weak(head, &operation, std::memory_order_release,
                                             std::memory_order_relaxed));
}

Operation* Inbox::take_submitted() noexcept {
  if (submitted_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  is_launching_.store(true, std::memory_order_relaxed);
  Operation* newest = submitted_.exchange(nullptr, std::memory_order_acq_rel);
  Operation* oldest = nullptr;
  while (newest != nullptr) {
    Operation* next = newest->lists.queue_next;
    newest->lists.queue_next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

void Inbox::on_peer_lost(std::uint32_t rank, std::string_view how) {
  post({ControlEvent::Kind::lost, rank, std::string(how), {}, {}, {}});
}

void Inbox::on_peer_left(std::uint32_t rank) {
  post({ControlEvent::Kind::left, rank, {}, {}, {}, {}});
}

void Inbox::on_message(std::uint32_t origin, std::span<const std::byte> message) {
  post({ControlEvent::Kind::message, origin, {}, {message.begin(), message.end()}, {}, {}});
}

void Inbox::on_met(Encounter encounter) {
  const std::uint32_t peer = encounter.rank;
  post({ControlEvent::Kind::met, peer, {}, {}, std::move(encounter), {}});
}

void Inbox::on_unmet(std::uint32_t rank, const Status& why) {
  post({ControlEvent::Kind::unmet, rank, {}, {}, {}, why});
}

void Inbox::post(ControlEvent event) {
  {
    const std::lock_guard lock(events_mutex_);
    events_.push_back(std::move(event));
  }
  has_events_.store(true, std::memory_order_seq_cst);
}

std::vector<ControlEvent> Inbox::take_events() {
  std::vector<ControlEvent> events;
  if (!has_events()) return events;
  const std::lock_guard lock(events_mutex_);
  events.swap(events_);
  has_events_.store(false, std::memory_order_relaxed);
  return events;
}

}  // namespace xylem::runtime
