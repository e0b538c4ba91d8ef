// SPDX-License-Identifier: Apache-2.0
//
// A mailbox: where the messages to one loopback transport meet its posted receives. It is the only
// thing that threads share, each has its own mutex, and nobody ever holds two.
//
//   senders ── copy/offer ──▶ incoming ── deliver ──▶ posted receive?  yes ▶ matched (bytes move
//   outside of the lock)
//                                                                      no  ▶ unexpected ◀── post,
//                                                                      discard, withdraw
//   receivers of our offers ── complete ──▶ completions ── deliver ──▶ owner
#pragma once

#include "loopback/dice.h"
#include "receive.h"
#include "xylem/base/unique_fd.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace xylem::transport::loopback {

class Mailbox;

/// Who sent what.
struct Envelope {
  std::uint64_t sender = 0;  ///< The sender's mailbox id.
  EndpointId endpoint = 0;   ///< The sender's endpoint, by which it withdraws offers.
  Tag tag = 0;
  std::uint64_t bytes = 0;
};

/// A message on its way. Small ones carry their bytes; an offer leaves them at the sender, whose
/// operation stays pending until a receive took them.
struct Message {
  Envelope envelope;
  std::vector<std::byte> payload;
  const void* source = nullptr;
  Operation* operation = nullptr;  ///< The sender's, of an offer; null for a copied message.
  std::shared_ptr<Mailbox> reply;  ///< Where an offer's end is reported.
};

/// The end of an offer, on its way back to the sender.
struct Completion {
  Operation* operation = nullptr;
  Code code = Code::ok;
};

/// Messages and the receives they met, in the same order.
struct Matches {
  std::list<Message> messages;
  std::vector<Receive> receives;
};

/// Thread-safe. List nodes move between lists and come back by recycle(), so steady traffic
/// allocates nothing.
class Mailbox {
 public:
  /// Without an eventfd (descriptors exhausted) the mailbox works but its owner cannot sleep.
  explicit Mailbox(std::uint64_t id);

  std::uint64_t id() const noexcept { return id_; }
  int wake_fd() const noexcept { return wake_.get(); }

  // For senders and for receivers of the owner's offers.

  /// Delivers a copy of `data`; false if the owner is gone.
  bool copy(const Envelope& envelope, const void* data);
  /// Offers `source`, which stays with the sender until `reply` gets the completion; false if the
  /// owner is gone.
  bool offer(const Envelope& envelope,
             const void* source,
             Operation& operation,
             std::shared_ptr<Mailbox> reply);
  /// Takes back the offers of one endpoint that no receive has met yet and appends their operations
  /// to `withdrawn`.
  void withdraw(std::uint64_t sender, EndpointId endpoint, std::vector<Operation*>& withdrawn);
  /// Takes back one offer, if no receive has met it yet.
  bool withdraw(const Operation& operation);
  /// Reports the end of one of the owner's offers.
  void complete(Completion completion);

  // For the owner.

  /// Posts a receive, or, if an unexpected message meets it, puts that into `met` instead and
  /// returns true.
  bool post(const Receive& receive, std::list<Message>& met);
  /// Takes a posted receive back; false if it is not posted (any more).
  bool cancel(const Operation& operation);
  /// Drops unexpected messages into `dropped`.
  std::size_t discard(Tag tag, Tag mask, std::list<Message>& dropped);
  /// Meets incoming messages with receives and hands over the completions. With dice, some messages
  /// may be left for later and those of different (sender, tag) overtake each other; at least one
  /// is delivered.
  unsigned deliver(Dice& dice, Matches& matches, std::vector<Completion>& completions);
  /// Gives nodes back for reuse.
  void recycle(std::list<Message>& spent);
  /// True if nothing waits here; the descriptor then becomes readable when something does.
  bool arm();
  /// The owner leaves: refuses messages from now on and hands out those that are still here.
  void retire(std::list<Message>& orphans);

 private:
  using Messages = std::list<Message>;

  void take_node(Messages& into);  // with the mutex held
  bool push(Messages& one);
  Messages::iterator draw(Dice& dice);  // with the mutex held
  void notify(std::unique_lock<std::mutex> lock);

  const std::uint64_t id_;
  const UniqueFd wake_;
  std::mutex mutex_;
  bool armed_ = false;
  bool retired_ = false;
  Messages incoming_;
  Messages unexpected_;
  Messages spare_;
  std::list<Receive> posted_;
  std::list<Receive> spare_receives_;
  std::vector<Completion> completions_;
};

}  // namespace xylem::transport::loopback
