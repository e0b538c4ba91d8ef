// SPDX-License-Identifier: Apache-2.0
//
// Collectives: starts the collectives of one group. It numbers each call, connects the links of its
// plan, and passes it to the engine. While too many calls run, it defers further calls. Only the
// token holder may use it.
#pragma once

#include "calls/admission.h"
#include "calls/operation.h"
#include "calls/plans.h"
#include "context.h"
#include "groups/call_history.h"
#include "groups/group_control.h"
#include "groups/group_spec.h"
#include "progress/token.h"
#include "xylem/base/status.h"
#include "xylem/execution/link.h"
#include "xylem/runtime/work.h"

#include <cstdint>
#include <optional>

namespace xylem::runtime {

class Collectives {
 public:
  /// All arguments outlive this object. The links of `peers` are set when they are first needed.
  Collectives(GroupControl& group,
              const GroupSpec& spec,
              Context& context,
              execution::Peers& peers,
              Plans& plans);

  CallHistory& history() noexcept { return history_; }
  /// Starts a call if a cached plan is found for it. Empty if there is no such plan, if there is no
  /// memory for the plan's scratch, or if the group cannot start a call now.
  std::optional<Work> try_start(Token token, const EvenArguments& arguments) noexcept;
  /// Starts a collective, or defers it while too many others run.
  void launch(Token token, Operation& operation);
  /// Call this when a collective has ended. Starts as many deferred calls as may run now.
  void on_ended(Token token);
  /// Call this when the group has failed. The deferred calls are then never started.
  void drop_deferred() noexcept { admission_.drop_deferred(); }

 private:
  void number(Execution& execution, const CallRecord& call, std::uint64_t label);
  void start(Token token, Operation& operation);
  Status prepare(Token token, Operation& operation);
  Status connect(Token token, Plan& plan);

  GroupControl& group_;
  const GroupSpec& spec_;
  Context& context_;
  execution::Peers& peers_;
  Plans& plans_;
  CallHistory history_;
  Admission admission_;
  /// True while on_ended() starts deferred calls. A deferred call may end at once, and on_ended()
  /// is then called recursively.
  bool is_starting_ = false;
};

}  // namespace xylem::runtime
