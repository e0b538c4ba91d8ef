// SPDX-License-Identifier: Apache-2.0
#include "wires/wire.h"

#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace xylem::runtime {
namespace {

/// Peers on one host answer within moments. If they do not in this time, another transport is used.
constexpr std::chrono::seconds kLongestMeeting{5};

}  // namespace

Wire::Wire(WireKind kind, const Hosts& hosts, ControlPlane& control, WiresListener& listener)
    : kind_(std::move(kind)),
      hosts_(hosts),
      control_(control),
      listener_(listener),
      addresses_(control.size()),
      links_(control.size()) {}

Status Wire::open(std::span<const std::uint32_t> peers, Deadline deadline) {
  if (!peers.empty()) {
    auto made = kind_.make(static_cast<std::uint32_t>(peers.size()));
    made_ = made.status();
    if (made) transport_ = std::move(made).value();
  }
  if (transport_ != nullptr) connections_ = transport_->connections();
  if (connections_ != nullptr) connections_->set_owner(this);
  const auto address = transport_ ? transport_->address() : std::span<const std::byte>();
  XYLEM_TRY(addresses_, control_.all_gather(address, deadline));
  return kind_.meets_at_start ? meet(peers, deadline) : Status();
}

/// Connects to the peers, and lets all ranks know which of them have not been met.
Status Wire::meet(std::span<const std::uint32_t> peers, Deadline deadline) {
  std::vector<std::uint32_t> unmet;
  if (transport_ != nullptr) {
    for (const std::uint32_t peer : peers) {
      if (has(peer)) XYLEM_TRY(link(peer));
    }
    const Deadline patience =
        Deadline::after(std::min<std::chrono::nanoseconds>(kLongestMeeting, deadline.left() / 2));
    for (const std::uint32_t peer : peers) {
      if (!has(peer)) continue;
      const auto meeting = [&] { return transport_->meeting(links_[peer].endpoint); };
      while (meeting() == transport::Meeting::waiting && !patience.passed()) {
        if (transport_->progress() == 0) sched_yield();
      }
      if (meeting() != transport::Meeting::met) unmet.push_back(peer);
    }
  }
  XYLEM_TRY(const auto all, control_.all_gather(std::as_bytes(std::span(unmet)), deadline));
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) XYLEM_TRY(note_unmet(rank, all[rank]));
  for (const std::uint32_t peer : peers) {
    if (links_[peer].transport == nullptr || joins(control_.rank(), peer)) continue;
    close(peer);
    links_[peer] = {};
  }
  return {};
}

/// `unmet` has the numbers of the ranks that `rank` has not met.
Status Wire::note_unmet(std::uint32_t rank, std::span<const std::byte> unmet) {
  for (; !unmet.empty(); unmet = unmet.subspan(sizeof(std::uint32_t))) {
    std::uint32_t peer = control_.size();
    if (unmet.size() >= sizeof peer) std::memcpy(&peer, unmet.data(), sizeof peer);
    if (peer >= control_.size()) {
      return failure(Code::mismatch,
                     fmt::format("rank {} names a rank that it did not meet over {}, and that does "
                                 "not exist; it runs another build",
                                 rank, kind_.name),
                     rank);
    }
    unmet_.insert(std::minmax(rank, peer));
  }
  return {};
}

Result<Link> Wire::link(std::uint32_t rank) {
  Link& link = links_[rank];
  if (link.transport == nullptr) {
    XYLEM_TRY(const auto endpoint, transport_->connect(addresses_[rank]));
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

void Wire::on_wanted(transport::EndpointId endpoint) { control_.ask_for(rank_behind(endpoint)); }

void Wire::on_lost(transport::EndpointId endpoint, const Status& why) {
  listener_.on_link_lost(rank_behind(endpoint), why);
}

Status Wire::adopt(std::uint32_t rank, transport::Connection connection) {
  if (connections_ == nullptr) return {};
  XYLEM_TRY(const Link link, this->link(rank));
  return connections_->adopt(link.endpoint, std::move(connection));
}

void Wire::give_up_meeting(std::uint32_t rank) noexcept {
  const Link& link = links_[rank];
  if (connections_ == nullptr || link.transport == nullptr) return;
  if (!connections_->has_met(link.endpoint)) close(rank);
}

void Wire::close(std::uint32_t rank) noexcept {
  const Link& link = links_[rank];
  if (link.transport != nullptr) link.transport->close(link.endpoint);
}

void Wire::end_silent(Clock::time_point now) noexcept {
  if (connections_ != nullptr) connections_->end_silent(now);
}

}  // namespace xylem::runtime
