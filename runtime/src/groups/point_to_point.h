// SPDX-License-Identifier: Apache-2.0
//
// Point to point: matches sends and receives by source and tag, in the order of the calls. A
// receive may accept any source.
//
// Each message begins with a header. Headers are numbered for each ordered pair of ranks. The bytes
// of a small message follow within its header. The body of a large message is sent under its own
// tag. The receiver posts a receive for this tag once a `recv` matches the header, so the body
// arrives directly in the user's buffer. Each member posts header slots, into which the transports
// receive headers.
//
// Memory is bounded. At the receiver, a group keeps about kMostUnexpected bytes of messages that no
// receive has matched. While it keeps more, it posts no slots, except when a receive waits for a
// message that has not arrived. At the sender, at most kMostSending headers to each rank are under
// way. Further sends wait in the order of the calls, and their bytes stay in the user's buffers.
//
//   sender                                   receiver
//   header{number, tag, count, type} ──────► slot; match(source, tag) with a receive, or keep
//   body (large) ──────────────────────────► posted into the user's buffer at the match
//
// The message may be shorter than the buffer of its receive; the rest of the buffer stays
// unchanged. If it is longer, the receive fails before a byte is written. The send fails, too,
// unless it has ended (point_to_point_refusal.cc). The group continues. If the element types
// differ, the group fails.
//
// A body in device memory is sent directly from device memory if the transport can do this. The
// receiver's device then reads the body there if it can access that memory. Otherwise the whole
// message goes through host memory: it is copied to the host before it is sent, and to the device
// after it has arrived.
#pragma once

#include "bootstrap/control_plane.h"
#include "calls/gate_waits.h"
#include "calls/operands.h"
#include "calls/operation.h"
#include "failure/situation.h"
#include "groups/group_control.h"
#include "groups/group_spec.h"
#include "groups/header_pool.h"
#include "groups/header_receiver.h"
#include "groups/match_queue.h"
#include "groups/receive_polling.h"
#include "wires/wires.h"
#include "xylem/base/status.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/link.h"
#include "xylem/runtime/work.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::runtime {

/// The messages of one group. For the token holder only.
class PointToPoint final : public MessageListener,
                           private HeaderReceiver::Client,
                           private HeaderUser {
 public:
  /// All arguments must outlive this object. Before an operation starts, `peers` must contain the
  /// links to all ranks with which it may exchange messages.
  PointToPoint(GroupControl& group,
               const GroupSpec& spec,
               const execution::Peers& peers,
               const Wires& wires,
               ControlPlane& control,
               Engine& engine,
               HeaderPool& headers);

  void start(Operation& operation);
  /// Sends a note to rank `to` of the group: a message of at most kInlineMessage bytes from this
  /// library, which no receive matches. There, GroupControl::on_note() is called with it, once
  /// receive_notes() has been called. Precondition: the link to the rank is known.
  void send_note(std::uint32_t to, std::span<const std::byte> bytes);
  /// Precondition: the links to all ranks are known.
  void receive_notes();
  /// Whether notes, and so all messages, are received even while many messages wait for their
  /// receives. Call this after receive_notes().
  void hasten_notes(bool are_urgent);
  /// Call this when rank `rank` of the group has left the job. Later sends to it fail.
  void note_left(std::uint32_t rank) noexcept;
  /// Whether the message of a call passes through host memory (Run::staged). For any thread.
  Staging staging_of(const Call& call, const execution::OnDevice& device) const noexcept;
  /// Sends or receives a message within this call, if possible. If only a large body remains,
  /// begins an operation for the body. Empty if nothing was sent or received. Precondition: the
  /// arguments have been checked.
  std::optional<Work> try_send(const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag);
  std::optional<Work> try_recv(const Buffer& buffer, std::uint32_t from, std::uint32_t tag);
  /// Handles a large body that has been sent or received. If the receive is for device memory, the
  /// body is copied to the device.
  void on_body(Message& message) override;
  /// Handles a refusal that rank `from` of the group has sent, or the answer of rank `from` to a
  /// refusal of this rank.
  void on_refusal(std::uint32_t from, const Refusal& refusal);
  /// Call this when the bytes of a message have been copied between the host and a device. A send
  /// that waits for the copy continues; a receive ends, or its message is copied from the host to
  /// the device.
  void on_copied(Operation& operation) override;
  /// Call this when the gate of a receive has not opened in time. The message is then copied to the
  /// host. `copy` is the copy to the device that has waited for the gate.
  void on_late_gate(Operation& operation, const execution::OnDevice::Copy& copy) override;
  /// Call this when the operation ends: removes it from all lists of waiting operations.
  void forget(Operation& operation) noexcept;
  /// Cancels the posted header slots. Call this before the group ends.
  void close() noexcept;

 private:
  void open();

  static constexpr std::uint32_t kMostSending = 1024;
  static constexpr std::uint64_t kMostUnexpected = 1 << 20;

  struct Pair {
    std::uint32_t sent = 0;     ///< Number of the next message to this rank.
    std::uint32_t sending = 0;  ///< Number of headers to this rank that a transport still holds.
    bool has_left = false;      ///< The rank has left the job, so nothing can be sent to it.
    /// Sends to this rank that have not begun, in the order of the calls.
    runtime::Operation* waiting = nullptr;
    runtime::Operation* last_waiting = nullptr;
    GateWaits gate_waits;  ///< For messages from this rank.
  };

  MessageHeader next_header(std::uint32_t to,
                            std::uint64_t count,
                            DataType type,
                            std::uint32_t tag) const noexcept;
  transport::Tag tag_of_body(const MessageHeader& header, std::uint32_t to) const noexcept;
  /// How much of a message send_at_once() has sent.
  enum class Sent : std::uint8_t { nothing, header, all };
  /// Sends what the shared memory of the peer has room for. Uses only the address and the memory
  /// kind of `body`.
  Sent send_at_once(std::uint32_t to,
                    const MessageHeader& header,
                    const transport::ConstRegion& body);
  void send_header(const MessageHeader& header, const Call& call);
  bool try_send_body(std::uint32_t to, const MessageHeader& header, const void* data);
  bool try_receive_body(const Link& link, const MessageHeader& header, void* data);
  transport::ConstRegion region_of(const Operation& operation) const noexcept;
  void send_body(Operation& operation, const MessageHeader& header);
  void receive_body(Operation& operation, const MessageHeader& header);
  void send(Operation& operation);
  void begin_send(Operation& operation);
  void on_sent(const HeaderSlot& slot) override;
  void wait_for_turn(Operation& operation);
  void send_waiting(Pair& pair);
  void send_to_self(Operation& operation);
  void copy_to_device(Operation& operation);
  void copy_on_device(Operation& operation, const execution::HeldView& held);
  std::byte* host_room(Operation& operation, std::uint64_t bytes);
  void complete_receive(Operation& operation, const void* source);
  void receive(Operation& operation);
  bool poll_headers(unsigned& found) override;
  void accept(const MessageHeader& header, const std::byte* payload) override;
  bool is_full() const noexcept override {
    return !is_urgent_ && !queue_.has_receives() && queue_.arrived_bytes() > kMostUnexpected;
  }
  bool forget_waiting(Operation& operation) noexcept;
  void deliver(Operation& receive,
               const MessageHeader& header,
               const std::byte* payload,
               Operation* self);
  static std::uint64_t received_bytes(const Operation& receive) noexcept {
    return receive.received * size_of(receive.call.type);
  }
  void match(Operation& receive, const MessageHeader& header) const noexcept;

  // Messages that are too long for their receives.
  void refuse(Operation& receive, const MessageHeader& header, Operation* self);
  void end_refused(Operation& operation, const Refusal& refusal, std::uint32_t receiver);
  Operation* find_send(std::uint32_t to, std::uint32_t number) const noexcept;
  void answer_late_refusal(const Operation& send);

  const Link& link_to(std::uint32_t rank) const noexcept { return peers_.links[rank]; }

  GroupControl& group_;
  const GroupSpec& spec_;
  const execution::Peers& peers_;
  const Wires& wires_;
  ControlPlane& control_;
  Engine& engine_;
  HeaderPool& pool_;
  ReceivePolling polling_;
  bool is_polling_ = false;  ///< True while HeaderPool::turn() calls this object.
  bool is_urgent_ = false;
  std::vector<Pair> pairs_;
  MatchQueue queue_;
  HeaderReceiver headers_;
};

}  // namespace xylem::runtime
