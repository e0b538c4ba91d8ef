// SPDX-License-Identifier: Apache-2.0
#include "shm/channels.h"

#include "xylem/base/clock.h"

#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <utility>

namespace xylem::transport::shm {

// ---- connecting ----

EndpointId Channels::connect(const Nonce& to) {
  const auto id = static_cast<EndpointId>(endpoints_.size());
  endpoints_.push_back(
      {to, Outgoing(id, *own_, *slots_, *outcomes_, CacheChoice(writes_), devices_)});
  is_connecting_ = true;
  send_hello(id);
  return id;
}

void Channels::send_hello(EndpointId id) {
  Endpoint& endpoint = endpoints_[id];
  if (endpoint.hello_sent || !endpoint.outgoing.is_open()) return;
  const auto sent =
      peers_->connect(endpoint.nonce, {.kind = PeerMessage::Kind::hello, .channel = id});
  endpoint.hello_sent = sent == Peers::Sent::done;
  if (sent == Peers::Sent::no_such_peer) endpoint.outgoing.close(false);
}

void Channels::accept(std::uint32_t channel) {
  Source& source = sources_[channel];
  if (source.has_accepted) return;
  const auto sent = peers_->connect(
      source.peer->nonce,
      {.kind = PeerMessage::Kind::accept, .channel = source.their_channel, .credit = channel});
  source.has_accepted = sent != Peers::Sent::later;
}

void Channels::on_hello(const PeerMessage& hello, Peer& peer) {
  if (hello.channel >= peer.segment.geometry().channels) {
    return peers_->refuse("it names no channel");
  }
  if (sources_.size() == own_->geometry().channels) {
    return peers_->refuse(
        fmt::format("there is room for {} peers, and all places are taken", sources_.size()));
  }
  const auto channel = static_cast<std::uint32_t>(sources_.size());
  sources_.push_back({&peer, hello.channel, false,
                      Incoming(channel, peer.segment, hello.channel, peer.owner(), peer.memory,
                               own_->credit(channel), *matcher_, *outcomes_, requests_, devices_)});
  accept(channel);
}

void Channels::on_accept(const PeerMessage& accept, Peer& peer) {
  const bool is_expected = accept.channel < endpoints_.size() &&
                           endpoints_[accept.channel].nonce == accept.from &&
                           endpoints_[accept.channel].peer == nullptr;
  if (!is_expected) return peers_->refuse("it accepts no channel of this transport");
  if (accept.credit >= peer.segment.geometry().channels) {
    return peers_->refuse("it names no credit");
  }
  const bool is_only_one = std::ranges::none_of(endpoints_, [&](const Endpoint& other) {
    return other.peer == &peer && other.outgoing.is_open();
  });
  if (is_only_one) peers_->revoke_all(peer);
  Endpoint& endpoint = endpoints_[accept.channel];
  endpoint.outgoing.open(peer.owner(), peer.segment.credit(accept.credit));
  endpoint.peer = &peer;
}

void Channels::poll_socket() {
  if (is_connecting_) {
    for (EndpointId id = 0; id < endpoints_.size(); ++id) send_hello(id);
    for (std::uint32_t channel = 0; channel < sources_.size(); ++channel) accept(channel);
  }
  while (const auto received = peers_->receive()) {
    if (received->message.kind == PeerMessage::Kind::hello) {
      on_hello(received->message, *received->peer);
    } else {
      on_accept(received->message, *received->peer);
    }
  }
  is_connecting_ = std::ranges::any_of(endpoints_, &Endpoint::is_waiting) ||
                   !std::ranges::all_of(sources_, &Source::has_accepted);
  reclaim_from_ended();
}

ConnectState Channels::connect_state(EndpointId id) const noexcept {
  const Endpoint& endpoint = endpoints_[id];
  if (!endpoint.outgoing.is_open()) return ConnectState::failed;
  const auto is_from_peer = [&](const Source& source) {
    return source.has_accepted && source.peer == endpoint.peer;
  };
  return std::ranges::any_of(sources_, is_from_peer) ? ConnectState::complete
                                                     : ConnectState::waiting;
}

Incoming* Channels::find_incoming(Endpoint& endpoint) noexcept {
  const auto source = std::ranges::find_if(
      sources_, [&](const Source& from) { return from.peer->nonce == endpoint.nonce; });
  return source == sources_.end() ? nullptr : endpoint.back = &source->incoming;
}

Endpoint* Channels::open_endpoint_to(const Nonce& nonce) noexcept {
  const auto at = std::ranges::find_if(endpoints_, [&](const Endpoint& endpoint) {
    return endpoint.nonce == nonce && endpoint.outgoing.is_open();
  });
  return at == endpoints_.end() ? nullptr : &*at;
}

// ---- the end ----

void Channels::close(EndpointId id) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.outgoing.close(endpoint.hello_sent);
  if (open_endpoint_to(endpoint.nonce) != nullptr) return;
  for (Source& source : sources_) {
    if (source.peer->nonce == endpoint.nonce) source.incoming.abandon();
  }
}

bool Channels::is_left(const Peer& peer) const noexcept {
  if (peer.owner().has_ended()) return true;
  bool has_any = false, is_open = false;
  for (const Endpoint& endpoint : endpoints_) {
    if (endpoint.nonce != peer.nonce) continue;
    has_any = true;
    is_open = is_open || endpoint.outgoing.is_open();
  }
  return has_any && !is_open;
}

/// Reclaims the slots held by receivers that have ended or died.
void Channels::reclaim_from_ended() {
  for (Endpoint& endpoint : endpoints_) {
    Outgoing& outgoing = endpoint.outgoing;
    const bool has_ended = outgoing.receiver().has_ended();
    if (outgoing.is_open() && !has_ended) continue;
    outgoing.retire();
    if (!outgoing.has_slots_out()) continue;
    if (has_ended || !PeerSocket::is_alive(endpoint.nonce)) outgoing.reclaim_slots();
  }
  for (Peer& peer : peers_->all()) {
    if (is_left(peer)) peer.memory.forget_all();
  }
}

bool Channels::cancel(const Operation& operation) {
  for (Source& source : sources_) {
    if (source.incoming.cancel(operation)) return true;
  }
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.outgoing.cancel(operation)) return true;
  }
  return false;
}

// ---- progress ----

unsigned Channels::progress() {
  unsigned count = 0;
  for (Source& source : sources_) count += source.incoming.drain();
  count += update_holds();
  pass_on_requests();
  bool is_stuck = false;
  for (Endpoint& endpoint : endpoints_) {
    if (!endpoint.outgoing.has_work()) continue;
    const unsigned pumped = endpoint.outgoing.pump();
    is_stuck = is_stuck || pumped == 0;
    count += pumped;
  }
  if (is_stuck) retire();
  return count;
}

bool Channels::retire() noexcept {
  bool has_any = false;
  for (Endpoint& endpoint : endpoints_) has_any = endpoint.outgoing.retire() || has_any;
  return has_any;
}

void Channels::report_consumed() noexcept {
  for (Source& source : sources_) source.incoming.report_consumed();
}

bool Channels::is_busy() {
  bool is_busy = false;
  for (Source& source : sources_) {
    is_busy = is_busy || !source.has_accepted || source.incoming.has_entry() ||
              source.incoming.is_fetching();
  }
  for (Endpoint& endpoint : endpoints_) {
    Outgoing& outgoing = endpoint.outgoing;
    const bool must_send_hello = outgoing.is_open() && !endpoint.hello_sent;
    const bool has_work = outgoing.has_work();
    // If entries have become free, the owner may be able to send the messages that found no room.
    is_busy = outgoing.retire() || is_busy || must_send_hello;
    is_busy = is_busy || (has_work && outgoing.pump() > 0);
    // No descriptor reports when a device has ended a copy.
    is_busy = is_busy || outgoing.is_copying();
  }
  return is_busy;
}

bool Channels::is_copying() const noexcept {
  return std::ranges::any_of(
      endpoints_, [](const Endpoint& endpoint) { return endpoint.outgoing.is_copying(); });
}

bool Channels::finish_copies() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  while (is_copying() && !deadline.passed()) {
    for (Endpoint& endpoint : endpoints_) endpoint.outgoing.pump();
    sched_yield();
  }
  return !is_copying();
}

// ---- holds ----

void Channels::request(const Receive& receive) {
  for (Source& source : sources_) {
    if (is_hold(source.incoming.holds())) send_request(source, {receive.tag, receive.mask});
  }
}

void Channels::send_request(Source& source, const Request& request) {
  Endpoint* const back = open_endpoint_to(source.peer->nonce);
  const bool is_sent =
      back == nullptr ||
      (source.unsent.empty() && back->outgoing.send_request(request, source.incoming.holds()));
  if (!is_sent) source.unsent.push_back(request);
}

/// Starts and ends holds. A channel without an endpoint back to its sender is never put on hold,
/// since requests could not be sent to the sender.
unsigned Channels::update_holds() {
  unsigned count = 0;
  for (Source& source : sources_) {
    const bool is_held = is_hold(source.incoming.holds());
    if (source.incoming.is_hold_due() != is_held &&
        (is_held || open_endpoint_to(source.peer->nonce) != nullptr)) {
      source.incoming.toggle_hold();
      ++count;
      source.unsent.clear();
      if (is_held) {
        --held_;
        continue;
      }
      ++held_;
      matcher_->for_each_posted([&](const Receive& receive) {
        send_request(source, {receive.tag, receive.mask});
      });
    }
    if (source.unsent.empty()) continue;
    const std::vector<Request> unsent = std::exchange(source.unsent, {});
    for (const Request& request : unsent) send_request(source, request);
    count += unsent.size() != source.unsent.size() ? 1 : 0;
  }
  return count;
}

/// Passes each peer's requests to the channel on which this process sends to that peer.
void Channels::pass_on_requests() {
  for (const PeerRequest& from_peer : requests_) {
    Endpoint* const back = open_endpoint_to(sources_[from_peer.channel].peer->nonce);
    if (back != nullptr) back->outgoing.on_request(from_peer.request, from_peer.holds);
  }
  requests_.clear();
}

}  // namespace xylem::transport::shm
