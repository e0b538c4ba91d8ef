// SPDX-License-Identifier: Apache-2.0
//
// Fakes for tests of the engine's parts: a device and views that the test controls, and a listener
// that records errors.
#pragma once

#include "support/engine_ranks.h"
#include "xylem/base/copy.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/engine_listener.h"
#include "xylem/transport/views.h"

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace xylem::execution {

/// A device that does nothing. Work completes when the test sets `done` to at least the number of
/// its ticket.
class HandDriven final : public Compute {
 public:
  std::uint32_t queues() const noexcept override { return 1; }
  Ticket enqueue(std::uint32_t /*queue*/,
                 const ComputeWork& work,
                 std::span<const Ticket> /*after*/) noexcept override {
    pieces.push_back(work.bytes);
    return {pieces.size(), 0};
  }
  bool has_completed(Ticket ticket) noexcept override { return ticket.number <= done; }
  void cancel(Ticket ticket) noexcept override { cancelled.push_back(ticket.number); }
  void open(Ticket /*gate*/) noexcept override {}
  void forget(Ticket /*gate*/) noexcept override {}
  Status health() const override { return {}; }

  std::vector<std::uint64_t> pieces;  ///< The size of each piece of work, in bytes.
  std::vector<std::uint64_t> cancelled;
  std::uint64_t done = 0;
};

/// A transport's Views that carry no messages and have one slot. They record the calls of the
/// engine.
class NotedViews final : public transport::Views {
 public:
  using EndpointId = transport::EndpointId;

  std::uint64_t view_bytes() const noexcept override { return sizeof(slot); }
  transport::Posted recv_view(transport::Tag /*tag*/,
                              transport::Region /*target*/,
                              transport::Operation& /*operation*/,
                              Memory /*reader*/) noexcept override {
    return transport::Posted::pending;
  }
  bool take_view(EndpointId /*from*/,
                 transport::Tag /*tag*/,
                 std::uint64_t /*bytes*/,
                 transport::View& /*view*/) noexcept override {
    return false;
  }
  bool release(const transport::View& /*view*/) noexcept override {
    ++released;
    return !is_withdrawn;
  }
  transport::ReserveResult reserve(std::span<const EndpointId> to,
                                   std::uint64_t /*bytes*/,
                                   transport::Reservation& reservation) noexcept override {
    reserved_for.assign(to.begin(), to.end());
    reservation.memory = slot;
    return room;
  }
  void fill(const void* /*data*/, CopyTarget /*also*/) noexcept override {}
  void commit(EndpointId to, transport::Tag /*tag*/) noexcept override { sent_to.push_back(to); }
  void abandon() noexcept override { ++abandoned; }
  std::uint32_t unread(EndpointId /*to*/) noexcept override { return 0; }
  bool is_readable(const transport::ConstRegion& /*source*/) noexcept override { return false; }
  void pull_from(std::uint64_t /*bytes*/) noexcept override {}

  bool is_withdrawn = false;
  unsigned released = 0, abandoned = 0;
  transport::ReserveResult room = transport::ReserveResult::reserved;
  std::vector<EndpointId> reserved_for, sent_to;
  std::byte slot[4096];
};

/// Records the messages that failed.
class NotedErrors final : public EngineListener {
 public:
  void on_wire_error(Execution& /*execution*/, std::uint32_t peer, Code code) override {
    wire_errors.emplace_back(peer, code);
    if (on_error) on_error();
  }
  void on_ended(Execution& /*execution*/, Status /*outcome*/) override {}
  void on_compute_error(Execution& /*execution*/, const Status& /*why*/) override {}
  void on_body(Message& /*message*/) override {}
  void on_copied(Execution& /*execution*/) override {}
  void on_late_gate(Execution& /*execution*/, const OnDevice::Copy& /*copy*/) override {}

  std::vector<std::pair<std::uint32_t, Code>> wire_errors;
  std::function<void()> on_error;
};

}  // namespace xylem::execution
