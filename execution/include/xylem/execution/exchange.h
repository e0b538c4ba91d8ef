// SPDX-License-Identifier: Apache-2.0
//
// Exchanges: a fast path for small calls. The programs of exchanges (Program::is_exchange) have one
// slice in each step, at most one message to and from each peer, and messages that wait for no
// computation. So all messages are issued at once, and the local steps run when the last message
// has completed. An exchange needs no StepState and no rounds. It moves the same bytes as a program
// that runs in rounds.
//
// If all ranks share memory and make the call at the same time, the exchange completes within the
// call:
//
//   try_start() ──► all messages have arrived: the exchange is complete
//        └──► otherwise: post_rest() ──► on_message() for each message ──► complete
#pragma once

#include "xylem/execution/held_views.h"
#include "xylem/execution/message_pool.h"
#include "xylem/execution/poll_budget.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::execution {

/// An exchange whose peers all share memory with this rank, so that it may complete within the
/// call.
struct Exchange {
  struct Message {
    StepId step = 0;
    transport::EndpointId endpoint = 0;
    transport::Tag tag = 0;  ///< A message_tag(), without the parts that differ in each call.
    std::uint64_t bytes = 0;
  };
  /// Sends of the same bytes to several peers: one inline message for each, or one slot for all.
  struct Cast {
    std::uint32_t first = 0, count = 0;  ///< A range of `sends`, and of `endpoints`.
  };

  const Program* program = nullptr;
  transport::Transport* transport = nullptr;  ///< Null if there are no messages.
  transport::Views* views = nullptr;          ///< Transport::views() of `transport`.
  std::uint64_t inline_bytes = 0;
  std::vector<Message> sends, receives;
  std::vector<transport::EndpointId> endpoints;  ///< endpoints[i] is the endpoint of sends[i].
  std::vector<Cast> casts;

  /// Makes the Exchange of a program, without the parts that connect() fills in. Empty if the
  /// program is not an exchange. `groups` is Peers::groups. The program must outlive the result.
  static std::optional<Exchange> of(const Program& program,
                                    std::uint32_t rank,
                                    std::span<const transport::Tag> groups);
  /// Fills in the transport and the endpoints of the peers. Returns true if all messages can go
  /// through the shared memory of one transport. Otherwise this Exchange cannot be used.
  bool connect(const Peers& peers) noexcept;
};

/// Runs exchanges for an engine.
class ExchangeRunner {
 public:
  ExchangeRunner(EngineListener& listener, MessagePool& messages, HeldViews& views)
      : listener_(listener), messages_(messages), views_(views) {}

  /// Sets how try_start() polls for messages that are about to arrive. By default it does not poll.
  void set_poll_budget(PollBudget budget) noexcept { poll_budget_ = budget; }
  const PollBudget& poll_budget() const noexcept { return poll_budget_; }

  /// See Engine::try_start().
  bool try_start(Execution& execution, const Exchange& exchange);
  /// Posts the messages that try_start() has not sent or received. The exchange is complete when
  /// Run::steps_left is 0, possibly within this call.
  void post_rest(Execution& execution);
  /// Handles a completed message of an exchange.
  void on_message(Message& message);

 private:
  static bool send_now(Execution& execution, const Exchange& exchange);
  bool receive_now(Execution& execution, const Exchange& exchange);
  void count(Execution& execution, StepId id, Code code, std::uint64_t bytes);
  void complete_if_last(Execution& execution);

  EngineListener& listener_;
  MessagePool& messages_;
  HeldViews& views_;
  PollBudget poll_budget_;
  /// Used by try_start(): the messages that have not arrived.
  std::vector<const Exchange::Message*> expected_;
};

}  // namespace xylem::execution
