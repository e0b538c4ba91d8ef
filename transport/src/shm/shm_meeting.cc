// SPDX-License-Identifier: Apache-2.0
//
// ShmTransport: how it meets its peers, and which memory beside the segments they read from each
// other.
#include "shm/shm_transport.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace xylem::transport::shm {
namespace {

/// Shorter messages are always copied into slots, since the copy takes less time than the
/// receiver's report that it has read the message.
constexpr std::uint64_t kLeastShared = 8 << 10;

}  // namespace

// ---- introductions ----

Meeting ShmTransport::meeting(EndpointId id) const noexcept {
  XYLEM_CHECK(id < endpoints_.size(), id, endpoints_.size());
  const Endpoint& endpoint = endpoints_[id];
  if (!endpoint.outgoing.is_open()) return Meeting::failed;
  const auto is_answered = [&](const Source& source) {
    return source.has_answered && source.peer->nonce == endpoint.nonce;
  };
  const bool has_met = !endpoint.is_waiting && std::ranges::any_of(sources_, is_answered);
  return has_met ? Meeting::met : Meeting::waiting;
}

void ShmTransport::call(EndpointId id) {
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.has_called || !endpoint.outgoing.is_open()) return;
  const auto sent =
      introduce_to(endpoint.nonce, {.kind = Introduction::Kind::hello, .channel = id});
  endpoint.has_called = sent == Door::Sent::done;
  if (sent != Door::Sent::nobody) return;
  endpoint.outgoing.close(false);
  stop_waiting(endpoint);
}

Door::Sent ShmTransport::introduce_to(const Nonce& nonce, Introduction introduction) {
  const Nonce& own = segment_.header().nonce;
  introduction.from = own;
  introduction.nonce_at = reinterpret_cast<std::uintptr_t>(&own);
  return door_.introduce(nonce, introduction, std::array{segment_.fd(), wake_.get()});
}

void ShmTransport::stop_waiting(Endpoint& endpoint) noexcept {
  if (std::exchange(endpoint.is_waiting, false)) --unmet_;
}

void ShmTransport::meet_peers() {
  wants_look_ = false;
  if (unmet_ > 0) {
    for (EndpointId id = 0; id < endpoints_.size(); ++id) call(id);
    for (std::uint32_t channel = 0; channel < sources_.size(); ++channel) answer(channel);
  }
  while (auto visitor = door_.next()) heed(*visitor);
}

void ShmTransport::heed(Visitor& visitor) {
  const Introduction& said = visitor.introduction;
  Peer* peer = peer_of(visitor);
  if (peer == nullptr) return;
  switch (said.kind) {
    case Introduction::Kind::hello: return heed_hello(said, *peer);
    case Introduction::Kind::accept: return heed_accept(said, *peer);
    case Introduction::Kind::share:
      // Messages in memory that cannot be mapped come through slots.
      if (Status mapped = peer->memory.map(said.allocation, visitor.descriptors[0], said.bytes);
          !mapped) {
        refuse(mapped.message());
      }
      return;
    case Introduction::Kind::forget: return peer->memory.forget(said.allocation);
  }
}

/// Reclaims the entries and slots of all channels that their receivers have finished with. True if
/// there were any.
bool ShmTransport::reclaim() noexcept {
  bool has_any = false;
  for (Endpoint& endpoint : endpoints_) has_any = endpoint.outgoing.retire() || has_any;
  return has_any;
}

/// Reclaims the slots held by receivers that have ended or died.
void ShmTransport::bury_dead() {
  for (Endpoint& endpoint : endpoints_) {
    Outgoing& outgoing = endpoint.outgoing;
    const bool is_gone = outgoing.receiver().is_gone();
    if (outgoing.is_open() && !is_gone) continue;
    outgoing.retire();
    if (!outgoing.has_slots_out()) continue;
    if (is_gone || !Door::is_anybody_behind(endpoint.nonce)) outgoing.take_back();
  }
  for (Peer& peer : peers_) {
    if (is_left(peer)) peer.memory.forget_all();
  }
}

/// Whether nothing of the peer will be read any more: it has ended, or all endpoints to it are
/// closed.
bool ShmTransport::is_left(const Peer& peer) const noexcept {
  if (peer.owner().is_gone()) return true;
  bool has_any = false, is_open = false;
  for (const Endpoint& endpoint : endpoints_) {
    if (endpoint.nonce != peer.nonce) continue;
    has_any = true;
    is_open = is_open || endpoint.outgoing.is_open();
  }
  return has_any && !is_open;
}

void ShmTransport::heed_hello(const Introduction& hello, Peer& peer) {
  if (hello.channel >= peer.segment.geometry().channels) return refuse("it names no channel");
  if (sources_.size() == segment_.geometry().channels) {
    return refuse(
        fmt::format("there is room for {} peers, and all places are taken", sources_.size()));
  }
  const auto channel = static_cast<std::uint32_t>(sources_.size());
  sources_.push_back({&peer, hello.channel, false,
                      Incoming(channel, peer.segment, hello.channel, peer.owner(), peer.memory,
                               segment_.credit(channel), matcher_, outcomes_, wants_, devices_)});
  ++unmet_;
  answer(channel);
}

void ShmTransport::answer(std::uint32_t channel) {
  Source& source = sources_[channel];
  if (source.has_answered) return;
  const auto sent = introduce_to(
      source.peer->nonce,
      {.kind = Introduction::Kind::accept, .channel = source.their_channel, .credit = channel});
  source.has_answered = sent != Door::Sent::later;
  if (source.has_answered) --unmet_;
}

void ShmTransport::heed_accept(const Introduction& accept, const Peer& peer) {
  const bool is_known = accept.channel < endpoints_.size() &&
                        endpoints_[accept.channel].nonce == accept.from &&
                        !endpoints_[accept.channel].outgoing.receiver().is_known();
  if (!is_known) return refuse("it answers no introduction of this transport");
  if (accept.credit >= peer.segment.geometry().channels) return refuse("it names no credit");
  Endpoint& endpoint = endpoints_[accept.channel];
  endpoint.outgoing.open(peer.owner(), peer.segment.credit(accept.credit));
  stop_waiting(endpoint);
}

ShmTransport::Peer* ShmTransport::peer_of(Visitor& visitor) {
  const Introduction& said = visitor.introduction;
  const Nonce nonce = said.from;
  const auto known = std::ranges::find(peers_, nonce, &Peer::nonce);
  if (known != peers_.end()) return &*known;
  if (descriptors_of(said.kind) != Visitor::kMostDescriptors) {
    refuse("its sender has not introduced itself");
    return nullptr;
  }
  auto segment = Segment::open(std::move(visitor.descriptors[0]), nonce);
  if (!segment) {
    refuse(segment.status().message());
    return nullptr;
  }
  Peer& peer = peers_.emplace_back(nonce, std::move(*segment), std::move(visitor.descriptors[1]),
                                   wants_look_, holds_wakes_);
  peer.memory.set_process(visitor.process, said.nonce_at, nonce);
  return &peer;
}

void ShmTransport::refuse(std::string_view why) const {
  if (logger_.enabled(LogLevel::warn)) {
    logger_.warn(fmt::format("shared memory: an introduction is refused: {}", why));
  }
}

// ---- memory that peers read where it is ----

/// The allocation that contains the source; null if there is none, or if the message is too short
/// to be worth it.
const Allocation* ShmTransport::find_shared(const ConstRegion& source) {
  if (source.bytes < kLeastShared) return nullptr;
  if (shared_version_ != Allocations::of_process().version()) follow_allocations();
  const auto holds = [&](const Allocation& shared) {
    return shared.holds(source.data, source.bytes);
  };
  const auto at = std::ranges::find_if(shared_, holds);
  return at == shared_.end() ? nullptr : &*at;
}

/// Updates the list of allocations, and tells peers which of them have been freed.
void ShmTransport::follow_allocations() {
  Allocations& allocations = Allocations::of_process();
  shared_version_ = allocations.version();
  shared_ = allocations.list();
  has_late_forgets_ = false;
  for (Endpoint& endpoint : endpoints_) {
    std::erase_if(endpoint.knows, [&](std::uint32_t id) {
      if (std::ranges::find(shared_, id, &Allocation::id) != shared_.end()) return false;
      const Introduction forget{
          .kind = Introduction::Kind::forget, .allocation = id, .from = segment_.header().nonce};
      const bool is_late = door_.introduce(endpoint.nonce, forget, {}) == Door::Sent::later;
      has_late_forgets_ = has_late_forgets_ || is_late;
      return !is_late;
    });
  }
}

/// Passes an allocation to the peer of an endpoint if necessary. True if the peer has it.
bool ShmTransport::share(Endpoint& endpoint, const Allocation& allocation) {
  if (std::ranges::find(endpoint.knows, allocation.id) != endpoint.knows.end()) return true;
  // A peer that has not answered yet does not know this transport.
  if (endpoint.is_waiting || !endpoint.outgoing.is_open()) return false;
  const Introduction share{.kind = Introduction::Kind::share,
                           .allocation = allocation.id,
                           .bytes = allocation.bytes,
                           .from = segment_.header().nonce};
  if (door_.introduce(endpoint.nonce, share, std::array{allocation.fd->get()}) !=
      Door::Sent::done) {
    return false;
  }
  endpoint.knows.push_back(allocation.id);
  return true;
}

Location ShmTransport::locate(Endpoint& endpoint, const ConstRegion& source) {
  const Allocation* shared = source.stay == Stay::nowhere ? nullptr : find_shared(source);
  if (shared != nullptr && share(endpoint, *shared)) {
    const auto* at = static_cast<const std::byte*>(source.data);
    return {Location::Where::shared, shared->id, static_cast<std::uint64_t>(at - shared->memory)};
  }
  if (source.stay == Stay::anywhere && source.bytes >= pull_from_) {
    return {Location::Where::process, 0, reinterpret_cast<std::uintptr_t>(source.data)};
  }
  return {};
}

bool ShmTransport::is_readable(const ConstRegion& source) noexcept {
  if (source.memory.kind != MemoryKind::host) return true;
  switch (source.stay) {
    case Stay::nowhere: return false;
    case Stay::in_shared: return find_shared(source) != nullptr;
    case Stay::anywhere: return source.bytes >= pull_from_ || find_shared(source) != nullptr;
  }
  return false;
}

}  // namespace xylem::transport::shm
