// SPDX-License-Identifier: Apache-2.0
//
// A mailbox: where the messages to one loopback transport meet its posted receives. Mailboxes are
// all that the threads share. Each has its own mutex, and no thread ever holds two of them.
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
  EndpointId endpoint = 0;   ///< The sender's endpoint. The sender withdraws its offers by it.
  Tag tag = 0;
  std::uint64_t bytes = 0;
};

/// A message in flight. Small messages carry their bytes. An offer leaves them in the sender's
/// memory, and the sender's operation stays pending until a receive has copied them.
struct Message {
  Envelope envelope;
  std::vector<std::byte> payload;
  const void* source = nullptr;
  Operation* operation = nullptr;  ///< An offer's send operation; null for a copied message.
  std::shared_ptr<Mailbox> reply;  ///< The mailbox to which the completion of an offer is reported.
};

/// The completion of an offer, for its sender.
struct Completion {
  Operation* operation = nullptr;
  Code code = Code::ok;
};

/// Matched pairs: the i-th message belongs to the i-th receive.
struct Matches {
  std::list<Message> messages;
  std::vector<Receive> receives;
};

/// Thread-safe. recycle() returns list nodes for reuse, so steady traffic allocates nothing.
class Mailbox {
 public:
  /// If no eventfd is available (descriptors exhausted), the mailbox works but its owner cannot
  /// sleep.
  explicit Mailbox(std::uint64_t id);

  std::uint64_t id() const noexcept { return id_; }
  int wake_fd() const noexcept { return wake_.get(); }

  // These functions are for senders, and for receivers of the owner's offers.

  /// Delivers a copy of `data`; false if the owner has ended.
  bool copy(const Envelope& envelope, const void* data);
  /// Offers `source`, which stays in the sender's memory until its completion is reported to
  /// `reply`; false if the owner has ended.
  bool offer(const Envelope& envelope,
             const void* source,
             Operation& operation,
             std::shared_ptr<Mailbox> reply);
  /// Withdraws the offers of one endpoint that no receive has matched yet, and appends their
  /// operations to `withdrawn`.
  void withdraw(std::uint64_t sender, EndpointId endpoint, std::vector<Operation*>& withdrawn);
  /// Withdraws one offer if no receive has matched it yet.
  bool withdraw(const Operation& operation);
  /// Reports the completion of one of the owner's offers.
  void complete(Completion completion);

  // These functions are for the owner.

  /// Posts a receive. If an unexpected message matches it, moves that message into `matched`
  /// instead and returns true.
  bool post(const Receive& receive, std::list<Message>& matched);
  /// Cancels a receive that is still posted; false if it is not.
  bool cancel(const Operation& operation);
  /// Moves unexpected messages that match into `dropped`; returns their number.
  std::size_t discard(Tag tag, Tag mask, std::list<Message>& dropped);
  /// Matches incoming messages with receives, and moves the completions out. With dice, some
  /// messages may be left for a later call, and messages that differ in sender or tag may overtake
  /// each other; at least one is delivered.
  unsigned deliver(Dice& dice, Matches& matches, std::vector<Completion>& completions);
  /// Returns nodes for reuse.
  void recycle(std::list<Message>& spent);
  /// True if nothing is waiting here; the descriptor then becomes readable when something arrives.
  bool arm();
  /// Called when the owner ends: refuses messages from now on, and moves the remaining ones into
  /// `orphans`.
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
