// SPDX-License-Identifier: Apache-2.0
//
// A mailbox: matches the messages to one loopback transport, the owner, with the owner's posted
// receives. The threads share only mailboxes and the Registry. Each mailbox has a mutex, and no
// thread ever holds the mutexes of two mailboxes.
//
//   senders ── copy, offer ──▶ incoming ── deliver ──▶ posted receive?
//                                              yes ▶ matched (bytes move without the lock)
//                                              no  ▶ unexpected ◀── post, discard, withdraw
//   receivers of our offers ── complete ──▶ completions ── deliver ──▶ owner
#pragma once

#include "loopback/dice.h"
#include "receive.h"
#include "xylem/base/mutex.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

namespace xylem::transport::loopback {

class Mailbox;

/// Identifies a message and its sender.
struct Envelope {
  std::uint64_t sender = 0;  ///< The sender's mailbox id.
  EndpointId endpoint = 0;   ///< The sender's endpoint; withdraw() selects offers by it.
  Tag tag = 0;
  std::uint64_t bytes = 0;
};

/// A message in flight. A small message contains a copy of its bytes. An offer is a message whose
/// bytes stay in the sender's memory; the sender's operation stays pending until the receiver has
/// copied them.
struct Message {
  Envelope envelope;
  std::vector<std::byte> payload;
  const void* source = nullptr;
  Operation* operation = nullptr;  ///< An offer's send operation; null for a copied message.
  std::shared_ptr<Mailbox> reply;  ///< The mailbox to which the completion of an offer is reported.
};

/// The completion of an offer, which is reported to the sender's mailbox.
struct Completion {
  Operation* operation = nullptr;
  Code code = Code::ok;
};

/// Matched pairs: the i-th message belongs to the i-th receive.
struct Matches {
  std::list<Message> messages;
  std::vector<Receive> receives;
};

/// Thread-safe. The owner is the transport that receives the messages. List nodes are reused
/// (recycle()), so steady traffic allocates nothing.
class Mailbox {
 public:
  /// If no eventfd is available (descriptors exhausted), the mailbox works but its owner cannot
  /// sleep.
  explicit Mailbox(std::uint64_t id);

  std::uint64_t id() const noexcept { return id_; }
  int wake_fd() const noexcept { return wake_.get(); }

  // Other transports call these functions: senders to the owner, and receivers of its offers.

  /// Delivers a copy of `data`; false if the owner has ended.
  bool copy(const Envelope& envelope, const void* data);
  /// Offers `source`. The bytes must stay in the sender's memory until the completion is reported
  /// to `reply`. False if the owner has ended.
  bool offer(const Envelope& envelope,
             const void* source,
             Operation& operation,
             std::shared_ptr<Mailbox> reply);
  /// Withdraws the offers of one endpoint of the transport `sender`, except those that a receive
  /// has matched, and appends their operations to `withdrawn`.
  void withdraw(std::uint64_t sender, EndpointId endpoint, std::vector<Operation*>& withdrawn);
  /// Withdraws the offer of this operation. False if a receive has matched it, or if there is none.
  bool withdraw(const Operation& operation);
  /// Reports to the owner that one of its offers has completed.
  void complete(Completion completion);

  // Only the owner calls these functions.

  /// Posts a receive. If an unexpected message matches it, moves that message into `matched`
  /// instead and returns true.
  bool post(const Receive& receive, std::list<Message>& matched);
  /// Removes the posted receive of this operation. False if it is not posted.
  bool cancel(const Operation& operation);
  /// Moves the unexpected messages that match (tag, mask) into `dropped`; returns their number.
  std::size_t discard(Tag tag, Tag mask, std::list<Message>& dropped);
  /// Moves each incoming message that matches a posted receive, and the receive, into `matches`.
  /// The other incoming messages become unexpected. Also moves all reported completions into
  /// `completions`. If `dice` reorders, at least one incoming message is processed, some may be
  /// left for a later call, and messages that differ in sender or tag may overtake each other.
  unsigned deliver(Dice& dice, Matches& matches, std::vector<Completion>& completions);
  /// Returns list nodes for reuse.
  void recycle(std::list<Message>& spent);
  /// True if neither a message nor a completion waits here; the descriptor then becomes readable
  /// when one arrives.
  bool arm();
  /// Call this when the owner ends. Afterwards the mailbox refuses messages; those that remain are
  /// moved into `orphans`.
  void retire(std::list<Message>& orphans);

 private:
  using Messages = std::list<Message>;

  void take_node(Messages& into) XYLEM_LOCKING(requires_capability(mutex_));
  bool push(Messages& one) XYLEM_LOCKING(locks_excluded(mutex_));
  Messages::iterator draw(Dice& dice) XYLEM_LOCKING(requires_capability(mutex_));
  void wake() noexcept;

  const std::uint64_t id_;
  const UniqueFd wake_;
  Mutex mutex_;
  bool armed_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  bool retired_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  Messages incoming_ XYLEM_LOCKING(guarded_by(mutex_));
  Messages unexpected_ XYLEM_LOCKING(guarded_by(mutex_));
  Messages spare_ XYLEM_LOCKING(guarded_by(mutex_));
  std::list<Receive> posted_ XYLEM_LOCKING(guarded_by(mutex_));
  std::list<Receive> spare_receives_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<Completion> completions_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::transport::loopback
