// SPDX-License-Identifier: Apache-2.0
#include "wires/wire.h"

#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace xylem::runtime {
namespace {

/// Peers on one host normally answer at once. If a peer does not answer within this time, the two
/// ranks use a later kind of transport.
constexpr std::chrono::seconds kLongestHandshake{5};

}  // namespace

Wire::Wire(WireKind kind,
           const Hosts& hosts,
           ControlPlane& control,
           WiresListener& listener,
           const Logger& logger)
    : kind_(std::move(kind)),
      hosts_(hosts),
      control_(control),
      listener_(listener),
      logger_(logger),
      published_(control.size()),
      links_(control.size()) {}

Status Wire::open(std::span<const std::uint32_t> peers, Deadline deadline) {
  if (!peers.empty()) {
    auto made = kind_.make(static_cast<std::uint32_t>(peers.size()));
    made_ = made.status();
    if (made) transport_ = std::move(made).value();
  }
  if (transport_ != nullptr) connections_ = transport_->connections();
  if (connections_ != nullptr) connections_->set_owner(this);
  XYLEM_TRY(publish(deadline));
  return kind_.probes_at_start ? probe(peers, deadline) : Status();
}

/// Exchanges addresses. Each rank publishes a byte 1 and its address, or a byte 0 and the reason
/// why it has no transport. A rank without peers publishes nothing.
Status Wire::publish(Deadline deadline) {
  std::vector<std::byte> mine;
  if (transport_ != nullptr) {
    const auto address = transport_->address();
    mine.push_back(std::byte{1});
    mine.insert(mine.end(), address.begin(), address.end());
  } else if (!made_) {
    const auto reason = std::as_bytes(std::span(made_.message()));
    mine.push_back(std::byte{0});
    mine.insert(mine.end(), reason.begin(), reason.end());
  }
  XYLEM_TRY(const auto all, control_.all_gather(mine, deadline));
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const auto rest = std::span(all[rank]).subspan(1);
    Published& theirs = published_[rank];
    theirs.has_transport = all[rank].front() == std::byte{1};
    if (theirs.has_transport) {
      theirs.address.assign(rest.begin(), rest.end());
    } else {
      theirs.failure.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
    }
  }
  return {};
}

/// Connects to the peers, waits for their answers, and publishes which peers have not answered.
Status Wire::probe(std::span<const std::uint32_t> peers, Deadline deadline) {
  std::vector<std::uint32_t> unreached;
  for (const std::uint32_t peer : peers) {
    if (transport_ == nullptr || !has(peer)) continue;
    if (const auto made = link(peer); !made) logger_.warn(made.status().message());
  }
  const Deadline limit =
      Deadline::after(std::min<std::chrono::nanoseconds>(kLongestHandshake, deadline.left() / 2));
  for (const std::uint32_t peer : peers) {
    if (transport_ != nullptr && has(peer) && !reaches(peer, limit)) unreached.push_back(peer);
  }
  XYLEM_TRY(const auto all, control_.all_gather(std::as_bytes(std::span(unreached)), deadline));
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    XYLEM_TRY(note_unreached(rank, all[rank]));
  }
  for (const std::uint32_t peer : peers) {
    if (joins(control_.rank(), peer)) continue;
    close(peer);
    links_[peer] = {};
  }
  return {};
}

/// Waits until the handshake with a peer is complete. False if the handshake fails, or is not
/// complete by `limit`.
bool Wire::reaches(std::uint32_t peer, Deadline limit) {
  const Link& link = links_[peer];
  if (link.transport == nullptr) return false;
  const auto state = [&] { return transport_->connect_state(link.endpoint); };
  while (state() == transport::ConnectState::waiting && !limit.passed()) {
    if (transport_->progress() == 0) sched_yield();
  }
  return state() == transport::ConnectState::complete;
}

Status Wire::why_apart(std::uint32_t a, std::uint32_t b) const {
  for (const std::uint32_t rank : {a, b}) {
    if (has(rank)) continue;
    if (rank == control_.rank()) return made_;
    return failure(Code::unsupported, obstacle(a, b), rank);
  }
  return failure(Code::unsupported, obstacle(a, b), a == control_.rank() ? b : a);
}

std::string Wire::obstacle(std::uint32_t a, std::uint32_t b) const {
  for (const std::uint32_t rank : {a, b}) {
    if (has(rank)) continue;
    return fmt::format("rank {} cannot use {}: {}", rank, kind_.name, published_[rank].failure);
  }
  return fmt::format("rank {} and rank {} do not meet over {}", a, b, kind_.name);
}

/// Reads what probe() of `rank` has published: the numbers of the peers that have not answered it.
Status Wire::note_unreached(std::uint32_t rank, std::span<const std::byte> unreached) {
  for (; !unreached.empty(); unreached = unreached.subspan(sizeof(std::uint32_t))) {
    std::uint32_t peer = control_.size();
    if (unreached.size() >= sizeof peer) std::memcpy(&peer, unreached.data(), sizeof peer);
    if (peer >= control_.size()) {
      return failure(Code::mismatch,
                     fmt::format("rank {} did not meet rank {} over {}, but there are {} ranks; it "
                                 "runs another build",
                                 rank, peer, kind_.name, control_.size()),
                     rank);
    }
    unreached_.insert(std::minmax(rank, peer));
  }
  return {};
}

Result<Link> Wire::link(std::uint32_t rank) {
  Link& link = links_[rank];
  if (link.transport == nullptr) {
    XYLEM_TRY(const auto endpoint, transport_->connect(published_[rank].address));
    link = execution::link_over(*transport_, endpoint);
  }
  return link;
}

std::uint32_t Wire::rank_behind(transport::EndpointId endpoint) const noexcept {
  const auto found = std::ranges::find_if(links_, [&](const Link& link) {
    return link.transport != nullptr && link.endpoint == endpoint;
  });
  return static_cast<std::uint32_t>(found - links_.begin());
}

void Wire::on_connection_needed(transport::EndpointId endpoint) {
  control_.request_connection(rank_behind(endpoint));
}

void Wire::on_lost(transport::EndpointId endpoint, const Status& why) {
  listener_.on_link_lost(rank_behind(endpoint), why);
}

Status Wire::adopt(std::uint32_t rank, transport::Connection connection) {
  if (connections_ == nullptr) return {};
  XYLEM_TRY(const Link link, this->link(rank));
  return connections_->adopt(link.endpoint, std::move(connection));
}

void Wire::close_unconnected(std::uint32_t rank) noexcept {
  const Link& link = links_[rank];
  if (connections_ == nullptr || link.transport == nullptr) return;
  if (!connections_->was_connected(link.endpoint)) close(rank);
}

void Wire::close(std::uint32_t rank) noexcept {
  const Link& link = links_[rank];
  if (link.transport != nullptr) link.transport->close(link.endpoint);
}

void Wire::end_silent(Clock::time_point now) noexcept {
  if (connections_ != nullptr) connections_->end_silent(now);
}

}  // namespace xylem::runtime
