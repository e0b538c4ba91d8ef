// SPDX-License-Identifier: Apache-2.0
//
// Posting, progress and shutdown of a loopback transport.
#include "loopback/loopback_transport.h"

#include "xylem/base/check.h"
#include "xylem/base/copy.h"

#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace xylem::transport::loopback {

std::shared_ptr<Mailbox> Registry::add() {
  const Lock lock(mutex_);
  auto mailbox = std::make_shared<Mailbox>(mailboxes_.size());
  mailboxes_.push_back(mailbox);
  return mailbox;
}

Result<std::shared_ptr<Mailbox>> Registry::find(std::uint64_t id) {
  const Lock lock(mutex_);
  if (id >= mailboxes_.size()) {
    return failure(Code::invalid_argument, "loopback address names transport " +
                                               std::to_string(id) + " but the fabric has " +
                                               std::to_string(mailboxes_.size()) +
                                               ": pass what address() returned");
  }
  return mailboxes_[id].lock();
}

LoopbackTransport::LoopbackTransport(std::shared_ptr<Registry> registry)
    : registry_(std::move(registry)),
      mailbox_(registry_->add()),
      dice_(registry_->options().seed, mailbox_->id()) {
  const std::uint64_t words[2] = {reinterpret_cast<std::uintptr_t>(registry_.get()),
                                  mailbox_->id()};
  static_assert(sizeof words == sizeof address_);
  std::memcpy(address_.data(), words, sizeof words);
}

// By contract, no operation is pending here. If one is, it ends without a call of `done`.
LoopbackTransport::~LoopbackTransport() {
  for (EndpointId endpoint = 0; endpoint < endpoints_.size(); ++endpoint) withdraw(endpoint);
  // Every offer that remains is being copied by its receiver, and will complete.
  while (offers_ > 0) {
    mailbox_->deliver(dice_, matches_, completions_);
    collect_completions();
    std::this_thread::yield();
  }
  std::list<Message> orphans;
  mailbox_->retire(orphans);
  orphans.splice(orphans.end(), matches_.messages);
  for (Message& message : orphans) {
    if (message.reply) message.reply->complete({message.operation, Code::peer_lost});
  }
}

Capabilities LoopbackTransport::capabilities() const noexcept {
  return {.inline_bytes = dice_.ordered() ? registry_->options().eager_bytes : 0,
          .withdraws = true,
          .checks_tags = true};
}

Result<EndpointId> LoopbackTransport::connect(std::span<const std::byte> address) {
  std::uint64_t words[2] = {};
  if (address.size() != sizeof words) {
    return failure(Code::invalid_argument,
                   "loopback address has " + std::to_string(address.size()) + " bytes, not " +
                       std::to_string(sizeof words) + ": pass what address() returned");
  }
  std::memcpy(words, address.data(), sizeof words);
  if (words[0] != reinterpret_cast<std::uintptr_t>(registry_.get())) {
    return failure(Code::invalid_argument,
                   "loopback address of another fabric: attach both transports to one fabric");
  }
  XYLEM_TRY(auto peer, registry_->find(words[1]));
  endpoints_.push_back({std::move(peer), {}});
  return static_cast<EndpointId>(endpoints_.size() - 1);
}

// Completes an operation that was just posted: at once or, if `dice_` reorders, possibly in a later
// progress().
Posted LoopbackTransport::finish(Operation& operation, Code code, std::uint64_t bytes) {
  if (!dice_.ordered() && dice_.coin()) {
    outcomes_.push_back({&operation, code, bytes});
    return Posted::pending;
  }
  operation.code = code;
  operation.bytes = bytes;
  return Posted::done;
}

Posted LoopbackTransport::send(EndpointId to,
                               Tag tag,
                               ConstRegion source,
                               Operation& operation) noexcept {
  XYLEM_CHECK(to < endpoints_.size(), to, endpoints_.size());
  XYLEM_CHECK(source.memory.kind == MemoryKind::host, xylem::name(source.memory.kind));
  Endpoint& endpoint = endpoints_[to];
  endpoint.traffic.count(source.bytes);
  if (!endpoint.peer) return finish(operation, Code::peer_lost, 0);

  const Envelope envelope{mailbox_->id(), to, tag, source.bytes};
  if (source.bytes <= registry_->options().eager_bytes) {
    const bool reached = endpoint.peer->copy(envelope, source.data);
    return finish(operation, reached ? Code::ok : Code::peer_lost, 0);
  }
  if (!endpoint.peer->offer(envelope, source.data, operation, mailbox_)) {
    return finish(operation, Code::peer_lost, 0);
  }
  ++offers_;
  return Posted::pending;
}

// Copies a message to the target of its receive. If the message is an offer, completes the send.
Outcome LoopbackTransport::transfer(Message& message, const Receive& receive) {
  const std::uint64_t bytes = message.envelope.bytes;
  const bool fits = receive.fits(bytes);
  if (fits) copy_bytes(receive.target.data, message.source, bytes);
  if (receive.sender_tag != nullptr) *receive.sender_tag = message.envelope.tag;
  if (message.reply) {
    message.reply->complete({std::exchange(message.operation, nullptr), Code::ok});
    message.reply.reset();
  }
  return {receive.operation, fits ? Code::ok : Code::mismatch, fits ? bytes : 0};
}

Posted LoopbackTransport::recv(
    Tag tag, Tag mask, Region target, Operation& operation, Tag* sender_tag) noexcept {
  XYLEM_CHECK(target.memory.kind == MemoryKind::host, xylem::name(target.memory.kind));
  const Receive receive{tag, mask, target, &operation, sender_tag};
  std::list<Message> matched;
  if (!mailbox_->post(receive, matched)) return Posted::pending;
  const Outcome outcome = transfer(matched.front(), receive);
  mailbox_->recycle(matched);
  return finish(operation, outcome.code, outcome.bytes);
}

// A send whose message has matched a receive is not cancelled: the receiver copies the message
// within the call that matched it.
void LoopbackTransport::cancel(Operation& operation) noexcept {
  if (mailbox_->cancel(operation)) {
    outcomes_.push_back({&operation, Code::cancelled, 0});
    return;
  }
  for (const Endpoint& endpoint : endpoints_) {
    if (!endpoint.peer || !endpoint.peer->withdraw(operation)) continue;
    --offers_;
    outcomes_.push_back({&operation, Code::cancelled, 0});
    return;
  }
}

std::size_t LoopbackTransport::discard(Tag tag, Tag mask) noexcept {
  std::list<Message> dropped;
  const std::size_t count = mailbox_->discard(tag, mask, dropped);
  for (Message& message : dropped) {
    if (!message.reply) continue;
    message.reply->complete({std::exchange(message.operation, nullptr), Code::ok});
    message.reply.reset();
  }
  mailbox_->recycle(dropped);
  return count;
}

void LoopbackTransport::collect_completions() {
  offers_ -= completions_.size();
  for (const Completion& completion : completions_) {
    outcomes_.push_back({completion.operation, completion.code, 0});
  }
  completions_.clear();
}

unsigned LoopbackTransport::progress() noexcept {
  const unsigned arrivals = mailbox_->deliver(dice_, matches_, completions_);
  collect_completions();
  auto message = matches_.messages.begin();
  for (const Receive& receive : matches_.receives)
    outcomes_.push_back(transfer(*message++, receive));
  matches_.receives.clear();
  mailbox_->recycle(matches_.messages);
  return arrivals + report_some();
}

// Reports outcomes: all of them in order or, if `dice_` reorders, at least one of them in any
// order.
unsigned LoopbackTransport::report_some() {
  if (outcomes_.empty()) return 0;
  if (!dice_.ordered()) {
    for (std::size_t i = outcomes_.size() - 1; i > 0; --i) {
      std::swap(outcomes_[i], outcomes_[dice_.below(i + 1)]);
    }
    const auto rest =
        outcomes_.begin() + 1 + static_cast<std::ptrdiff_t>(dice_.below(outcomes_.size()));
    later_.assign(rest, outcomes_.end());
    outcomes_.erase(rest, outcomes_.end());
  }
  const unsigned count = report(outcomes_, reporting_);
  outcomes_.insert(outcomes_.begin(), later_.begin(), later_.end());
  later_.clear();
  return count;
}

Result<bool> LoopbackTransport::arm() noexcept {
  if (wake_fd() < 0) {
    return failure(Code::exhausted,
                   "loopback cannot sleep, as no descriptor was left for it: raise ulimit -n");
  }
  return outcomes_.empty() && mailbox_->arm();
}

void LoopbackTransport::withdraw(EndpointId endpoint) {
  if (!endpoints_[endpoint].peer) return;
  endpoints_[endpoint].peer->withdraw(mailbox_->id(), endpoint, withdrawn_);
  endpoints_[endpoint].peer.reset();
  offers_ -= withdrawn_.size();
  for (Operation* operation : withdrawn_) outcomes_.push_back({operation, Code::peer_lost, 0});
  withdrawn_.clear();
}

void LoopbackTransport::close(EndpointId endpoint) noexcept {
  XYLEM_CHECK(endpoint < endpoints_.size(), endpoint, endpoints_.size());
  withdraw(endpoint);
}

std::vector<PhysicalPath> LoopbackTransport::paths(EndpointId /*endpoint*/) const {
  return {{"loopback", "memory"}};
}

Traffic LoopbackTransport::traffic(EndpointId endpoint) const noexcept {
  XYLEM_CHECK(endpoint < endpoints_.size(), endpoint, endpoints_.size());
  return endpoints_[endpoint].traffic;
}

}  // namespace xylem::transport::loopback

namespace xylem::transport {

struct LoopbackFabric::Medium : loopback::Registry {
  using Registry::Registry;
};

LoopbackFabric::LoopbackFabric(LoopbackOptions options)
    : medium_(std::make_shared<Medium>(options)) {}

LoopbackFabric::~LoopbackFabric() = default;

std::unique_ptr<Transport> LoopbackFabric::attach() {
  return std::make_unique<loopback::LoopbackTransport>(medium_);
}

}  // namespace xylem::transport
