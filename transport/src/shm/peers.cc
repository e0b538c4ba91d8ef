// SPDX-License-Identifier: Apache-2.0
#include "shm/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace xylem::transport::shm {

Peers::Sent Peers::send(const Nonce& to,
                        PeerMessage message,
                        std::span<const int> descriptors) noexcept {
  const Nonce& nonce = own_->header().nonce;
  message.from = nonce;
  message.nonce_at = reinterpret_cast<std::uintptr_t>(&nonce);
  return socket_.send(to, message, descriptors);
}

Peers::Sent Peers::connect(const Nonce& to, const PeerMessage& message) noexcept {
  return send(to, message, std::array{own_->fd(), wake_});
}

bool Peers::share(Peer& peer, const Allocation& allocation) {
  if (std::ranges::find(peer.shared, allocation.id) != peer.shared.end()) return true;
  const PeerMessage message{
      .kind = PeerMessage::Kind::share, .allocation = allocation.id, .bytes = allocation.bytes};
  const bool is_sent = send(peer.nonce, message, std::array{allocation.fd->get()}) == Sent::done;
  if (is_sent) peer.shared.push_back(allocation.id);
  return is_sent;
}

Peers::Sent Peers::revoke(const Peer& peer, std::uint32_t allocation) noexcept {
  return send(peer.nonce, {.kind = PeerMessage::Kind::forget, .allocation = allocation}, {});
}

void Peers::revoke_all(Peer& peer) noexcept {
  std::erase_if(peer.shared, [&](std::uint32_t id) { return revoke(peer, id) != Sent::later; });
}

bool Peers::revoke_freed(const std::vector<Allocation>& list) {
  bool is_complete = true;
  for (Peer& peer : peers_) {
    std::erase_if(peer.shared, [&](std::uint32_t id) {
      if (std::ranges::find(list, id, &Allocation::id) != list.end()) return false;
      const bool is_late = revoke(peer, id) == Sent::later;
      is_complete = is_complete && !is_late;
      return !is_late;
    });
  }
  return is_complete;
}

std::optional<Peers::Hello> Peers::receive() {
  must_poll_socket_ = false;
  while (auto received = socket_.receive()) {
    Peer* const peer = peer_of(*received);
    if (peer == nullptr) continue;
    const PeerMessage& message = received->message;
    switch (message.kind) {
      case PeerMessage::Kind::hello:
      case PeerMessage::Kind::accept: return Hello{message, peer};
      case PeerMessage::Kind::share:
        // If the memory cannot be mapped, messages in it are received through slots.
        if (Status mapped =
                peer->memory.map(message.allocation, received->descriptors[0], message.bytes);
            !mapped) {
          refuse(mapped.message());
        }
        break;
      case PeerMessage::Kind::forget: peer->memory.forget(message.allocation); break;
    }
  }
  return std::nullopt;
}

/// The sender of a message; adds the sender if this is its first message. Null if the sender cannot
/// be added.
Peer* Peers::peer_of(ReceivedMessage& received) {
  const PeerMessage& message = received.message;
  const Nonce nonce = message.from;
  const auto known = std::ranges::find(peers_, nonce, &Peer::nonce);
  if (known != peers_.end()) return &*known;
  if (descriptors_of(message.kind) != ReceivedMessage::kMostDescriptors) {
    refuse("its sender has sent no hello");
    return nullptr;
  }
  auto segment = Segment::open(std::move(received.descriptors[0]), nonce);
  if (!segment) {
    refuse(segment.status().message());
    return nullptr;
  }
  Peer& peer = peers_.emplace_back(nonce, std::move(*segment), std::move(received.descriptors[1]),
                                   must_poll_socket_, holds_wakes_);
  peer.memory.set_process(received.process, message.nonce_at, nonce);
  return &peer;
}

void Peers::refuse(std::string_view why) const {
  if (logger_.enabled(LogLevel::warn)) {
    logger_.warn(fmt::format("shared memory: a message of a peer is refused: {}", why));
  }
}

void Peers::hold_wakes(bool held) noexcept {
  holds_wakes_ = held;
  if (held) return;
  for (Peer& peer : peers_) {
    if (std::exchange(peer.wake_later.is_due, false)) peer.owner().wake();
  }
}

}  // namespace xylem::transport::shm
