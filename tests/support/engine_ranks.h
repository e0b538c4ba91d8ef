// SPDX-License-Identifier: Apache-2.0
//
// Ranks that consist of an engine and a transport, without a runtime. All ranks run in one thread.
#pragma once

#include "xylem/collectives/schedule.h"
#include "xylem/execution/engine.h"
#include "xylem/transport/transport.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace xylem::execution {

using collectives::Buffer;

/// Sums 32-bit integers.
inline void add(void* target,
                const void* const* sources,
                std::size_t source_count,
                std::size_t count,
                Finish /*finish*/) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t s = 0; s < source_count; ++s) {
      sum += static_cast<const std::uint32_t*>(sources[s])[i];
    }
    static_cast<std::uint32_t*>(target)[i] = sum;
  }
}

/// The communicator's part of the tags of messages to `rank`. Each rank has a different slot
/// number.
inline transport::Tag group_of(std::uint32_t rank) noexcept {
  return execution::group_tag(execution::TagKind::collective, 7 + rank);
}

struct TestExecution : Execution {
  using Execution::renew;
  using Execution::set_references;
  Status outcome;
  unsigned ended = 0, unreferenced_times = 0;

 private:
  void unreferenced() noexcept override { ++unreferenced_times; }
};

/// One rank: an engine, a transport and one execution, which is reused for each call.
class Rank final : public EngineListener {
 public:
  Rank(std::uint32_t rank, std::unique_ptr<transport::Transport> transport)
      : transport_(std::move(transport)) {
    peers_.rank = rank;
  }
  /// Connects to every rank. All ranks must exist before the first connect().
  void connect(const std::deque<Rank>& ranks) {
    for (const Rank& other : ranks) {
      const auto endpoint = transport_->connect(other.transport_->address()).value();
      peers_.links.push_back(link_over(*transport_, endpoint));
      peers_.groups.push_back(group_of(other.peers_.rank));
    }
  }
  void start(const std::shared_ptr<const Program>& program,
             std::uint64_t sequence,
             std::span<const std::uint32_t> input,
             std::span<std::uint32_t> output,
             double factor = 1) {
    prepare(program, sequence);
    execution.run.factor = factor;
    auto& base = execution.run.base;
    // The cast is safe because programs do not write their input.
    base[static_cast<int>(Buffer::input)] =
        reinterpret_cast<std::byte*>(const_cast<std::uint32_t*>(input.data()));
    base[static_cast<int>(Buffer::output)] = reinterpret_cast<std::byte*>(output.data());
    begin();
  }
  /// Resets the execution for a new call. The caller sets the input and output buffers afterwards.
  void prepare(const std::shared_ptr<const Program>& program, std::uint64_t sequence) {
    execution.renew();
    // If the previous call failed, its queued steps must have been removed.
    EXPECT_TRUE(execution.run.ready.empty() && execution.run.later.empty());
    EXPECT_TRUE(execution.run.arrived.empty() && execution.run.views.empty());
    EXPECT_TRUE(execution.run.tickets.empty() && execution.run.device.compute == nullptr);
    EXPECT_FALSE(execution.run.is_lost || execution.is_busy || execution.has_ended);
    execution.set_references(1);
    execution.ended = execution.unreferenced_times = 0;
    execution.outcome = failure(Code::invalid_argument, "has not ended");
    execution.peers = &peers_;
    execution.sequence = sequence;
    program_ = program;
    execution.run.program = program.get();
    execution.run.base[static_cast<int>(Buffer::scratch)] =
        execution.run.scratch.reserve(program->host_scratch_bytes(), nullptr);
  }
  void begin() {
    engine.activate(execution);
    engine.start(execution);
  }
  std::uint64_t bytes_sent_to(std::uint32_t peer) const {
    return transport_->traffic(peers_.links[peer].endpoint).bytes;
  }
  /// Closes all endpoints. All ranks must disconnect before any transport is destroyed.
  void disconnect() {
    for (const Link& link : peers_.links) transport_->close(link.endpoint);
    transport_->progress();
  }
  /// Drops messages that arrived for calls which have ended.
  void discard_all() { transport_->discard(0, 0); }
  unsigned turn() { return transport_->progress() + engine.run(); }

  void on_ended(Execution& ended, Status outcome) override {
    EXPECT_EQ(&ended, &execution);
    ++execution.ended;
    execution.outcome = std::move(outcome);
    execution.release();
  }
  void on_wire_error(Execution& failed, std::uint32_t peer, Code code) override {
    engine.fail(failed, failure(code, "from rank " + std::to_string(peer)));
  }
  void on_compute_error(Execution& failed, const Status& why) override { engine.fail(failed, why); }
  void on_copied(Execution& /*execution*/) override { ADD_FAILURE() << "no copy was posted"; }
  void on_late_gate(Execution& /*execution*/, const execution::OnDevice::Copy& /*copy*/) override {
    ADD_FAILURE() << "no copy was posted";
  }
  void on_body(Message& /*message*/) override { ADD_FAILURE() << "no message was posted"; }

  Engine engine{*this};
  TestExecution execution;

 private:
  std::unique_ptr<transport::Transport> transport_;
  Peers peers_;
  std::shared_ptr<const Program> program_;  ///< The program of the call under way.
};

/// Drives all ranks until every rank's execution has ended. Returns false if `most_turns` turns are
/// not enough.
inline bool turn_until_ended(std::deque<Rank>& ranks, unsigned most_turns = 1'000'000) {
  for (unsigned turns = 0; turns < most_turns; ++turns) {
    bool all = true;
    for (Rank& rank : ranks) {
      rank.turn();
      all = all && rank.execution.ended > 0;
    }
    if (all) return true;
  }
  return false;
}

}  // namespace xylem::execution
