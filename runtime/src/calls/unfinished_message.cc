// SPDX-License-Identifier: Apache-2.0
#include "calls/unfinished_message.h"

#include "groups/group.h"
#include "xylem/base/quantity.h"

#include <fmt/format.h>

namespace xylem::runtime {
namespace {

/// What a receive has waited for.
std::string describe_receive(const Operation& receive) {
  const Call& call = receive.call;
  if (receive.lists.is_queued) {
    return fmt::format("a receive with tag {} met no partner", call.tag);
  }
  const bool is_arriving = receive.messages != nullptr;
  return fmt::format(
      "a message of {} {} from rank {} with tag {} {}", receive.received, name(call.type),
      receive.source, call.tag,
      is_arriving ? "did not arrive completely" : "arrived, but did not reach its device");
}

/// What a send has waited for. The sender cannot tell whether a receive has matched the message.
std::string describe_send(const Operation& send) {
  const Call& call = send.call;
  const GroupSpec& group = group_of(send).spec();
  const std::uint32_t to = group.world_ranks[call.peer];
  if (send.lists.is_staging) {
    return fmt::format("a message of {} {} to rank {} with tag {} did not leave its device",
                       call.count, name(call.type), to, call.tag);
  }
  if (!send.lists.is_queued) {
    return fmt::format("a message of {} {} to rank {} with tag {} was not received completely",
                       call.count, name(call.type), to, call.tag);
  }
  if (call.peer == group.rank) {
    return fmt::format("a send with tag {} met no partner", call.tag);
  }
  return fmt::format("a send to rank {} with tag {} waited behind earlier messages to that rank",
                     to, call.tag);
}

}  // namespace

std::string describe_unfinished(const Operation& message, std::chrono::nanoseconds limit) {
  const GroupSpec& group = group_of(message).spec();
  const bool is_send = message.call.kind == CallKind::send;
  return fmt::format("rank {}: {} within {}", group.own_world_rank(),
                     is_send ? describe_send(message) : describe_receive(message),
                     format_duration(limit));
}

}  // namespace xylem::runtime
