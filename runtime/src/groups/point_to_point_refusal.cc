// SPDX-License-Identifier: Apache-2.0
//
// PointToPoint: messages that are longer than the buffers of their receives. Such a receive fails
// as soon as it matches the header, so no byte is written. By then, the send of a small message has
// ended. The body of a large message may be in transit, or may wait for its receive:
//
//   sender                                     receiver
//   header ──────────────────────────────────► is too long: the receive fails
//   the send fails, its body is withdrawn ◄─── refusal (control plane)
//     or the body comes: answer ─────────────► drops the body
//
// The body is sent in spite of the refusal if the send had ended, or if the transport cannot
// withdraw it (UCX). The sender then answers, and the receiver posts a receive of 0 bytes, which
// drops the body. The receiver waits for the answer first: with an earlier receive of 0 bytes, the
// send would often end as if the message had been received.
#include "groups/point_to_point.h"

#include <fmt/format.h>

#include <cstdint>

namespace xylem::runtime {
namespace {

/// Whether a send to this rank can be withdrawn.
bool withdraws(const Wires& wires, std::uint32_t world_rank) noexcept {
  return wires.capabilities(world_rank).withdraws;
}

}  // namespace

/// Fails a receive that is too short for its message. `self` is the send if this rank sends to
/// itself, otherwise null.
void PointToPoint::refuse(Operation& receive, const MessageHeader& header, Operation* self) {
  const Refusal refusal{
      .to = spec_.world_ranks[header.source], .header = header, .room = receive.call.count};
  end_refused(receive, refusal, spec_.rank);
  if (self != nullptr) return end_refused(*self, refusal, spec_.rank);
  if (body_bytes(header) > kInlineMessage) control_.flood(encode(refusal));
}

/// Ends the send or the receive of a refused message. `receiver` is a rank of the group.
void PointToPoint::end_refused(Operation& operation,
                               const Refusal& refusal,
                               std::uint32_t receiver) {
  const MessageHeader& header = refusal.header;
  const std::uint32_t from = spec_.world_ranks[header.source], to = spec_.world_ranks[receiver];
  operation.fails_alone = true;
  engine_.fail(operation,
               failure(Code::mismatch,
                       fmt::format("rank {} sends {} {} to rank {} with tag {}, which receives at "
                                   "most {}; make its buffer as large as the message",
                                   from, header.count, name(static_cast<DataType>(header.type)), to,
                                   header.tag, refusal.room),
                       operation.call.kind == CallKind::send ? to : from));
}

void PointToPoint::on_refusal(std::uint32_t from, const Refusal& refusal) {
  if (!group_.health()) return;  // All messages of the group are dropped.
  if (refusal.is_answer) {
    if (refusal.header.source == from) {
      headers_.drop_body(*link_to(from).transport, tag_of_body(refusal.header, spec_.rank));
    }
    return;
  }
  Operation* const send = find_send(from, refusal.header.number);
  if (send != nullptr) {
    end_refused(*send, refusal, from);
    if (withdraws(wires_, spec_.world_ranks[from]))
      return;  // If the body was sent anyway, on_body() answers.
  }
  Refusal answer = refusal;
  answer.to = spec_.world_ranks[from];
  answer.is_answer = true;
  control_.flood(encode(answer));
}

/// The send of message `number` to rank `to` of the group, if its body is under way; otherwise
/// null.
Operation* PointToPoint::find_send(std::uint32_t to, std::uint32_t number) const noexcept {
  for (Execution* at = engine_.active(); at != nullptr; at = at->active_next) {
    Operation& operation = *as_operation(at);
    const bool is_it = operation.peers == &peers_ && operation.call.kind == CallKind::send &&
                       operation.call.peer == to && operation.messages != nullptr &&
                       operation.sequence == number;
    if (is_it) return &operation;
  }
  return nullptr;
}

/// Answers a refusal that arrived after the body had been sent.
void PointToPoint::answer_late_refusal(const Operation& send) {
  const Call& call = send.call;
  if (!group_.health() || !withdraws(wires_, spec_.world_ranks[call.peer]))
    return;  // If sends cannot be withdrawn, on_refusal() has answered already.
  MessageHeader header = next_header(call.peer, call.count, call.type, call.tag);
  header.number = static_cast<std::uint32_t>(send.sequence);
  control_.flood(
      encode(Refusal{.to = spec_.world_ranks[call.peer], .is_answer = true, .header = header}));
}

}  // namespace xylem::runtime
