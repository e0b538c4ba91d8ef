// SPDX-License-Identifier: Apache-2.0
#include "wires/wires.h"

#include "xylem/transport/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace xylem::runtime {

WireOptions wire_options(const Config& config, transport::DeviceMemory* devices) {
  return {
      .protection = config.protection, .devices = devices, .meets_early = config.tuning != "off"};
}

Result<std::unique_ptr<Wires>> Wires::connect(ControlPlane& control,
                                              const PeerFacts& mine,
                                              const WireKinds& kinds,
                                              const WireOptions& options,
                                              WiresListener& listener,
                                              const Logger& logger,
                                              Deadline deadline) {
  std::unique_ptr<Wires> wires(new Wires(control, options, listener, logger));
  XYLEM_TRY(wires->exchange_facts(mine, deadline));
  const auto of_job = kinds(wires->hosts_, options.devices);
  wires->meet_early(of_job);
  XYLEM_TRY(wires->open(of_job, deadline));
  return wires;
}

Status Wires::exchange_facts(const PeerFacts& mine, Deadline deadline) {
  XYLEM_TRY(const auto facts, control_.all_gather(encode(mine), deadline));
  std::vector<PeerFacts> peers;
  for (std::uint32_t rank = 0; rank < control_.size(); ++rank) {
    XYLEM_TRY(auto peer, decode(rank, facts[rank]));
    XYLEM_TRY(compare_settings(rank_, mine, rank, peer));
    peers.push_back(std::move(peer));
  }
  hosts_ = Hosts(std::move(peers), rank_);
  return {};
}

/// The connection is between rank 0 and the first rank of another host (measure.h).
void Wires::meet_early(std::span<const WireKind> kinds) const {
  if (rank_ != 0 || !options_.meets_early) return;
  const auto& peers = hosts_.peers();
  for (std::uint32_t other = 1; other < peers.size(); ++other) {
    if (hosts_.are_together(0, other)) continue;
    const auto kind = std::ranges::find_if(
        kinds, [&](const WireKind& each) { return each.may_join(peers[0], peers[other]); });
    if (kind != kinds.end() && kind->has_connections) control_.ask_for(other);
    return;
  }
}

Status Wires::open(std::span<const WireKind> kinds, Deadline deadline) {
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    auto wire = std::make_unique<Wire>(kinds[kind], hosts_, control_, listener_);
    if (!may_join_any(*wire)) continue;
    std::vector<std::uint32_t> peers;
    for (std::uint32_t peer = 0; peer < wire_to_.size(); ++peer) {
      const bool needs_one = peer != rank_ && wire_to_[peer] == nullptr;
      if (needs_one && wire->may_join(rank_, peer)) peers.push_back(peer);
    }
    XYLEM_TRY(wire->open(peers, deadline));
    assign(*wire, peers, kind + 1 < kinds.size() ? kinds[kind + 1].name : "");
    if (wire->transport() != nullptr) transports_.push_back(wire->transport());
    wires_.push_back(std::move(wire));
  }
  return check_pairs(kinds);
}

/// Whether a wire may join two ranks that no other wire joins. The same on all ranks.
bool Wires::may_join_any(const Wire& wire) const {
  for (std::uint32_t b = 1; b < control_.size(); ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      if (wire.may_join(a, b) && wire_between(a, b) == nullptr) return true;
    }
  }
  return false;
}

/// The wire that two ranks use, or null. The same on all ranks.
const Wire* Wires::wire_between(std::uint32_t a, std::uint32_t b) const {
  const auto found =
      std::ranges::find_if(wires_, [&](const auto& wire) { return wire->joins(a, b); });
  return found == wires_.end() ? nullptr : found->get();
}

/// Notes which of the peers a new wire reaches. Warns of the others if there is a `next` kind of
/// transport; otherwise check_pairs() fails.
void Wires::assign(Wire& wire, std::span<const std::uint32_t> peers, std::string_view next) {
  if (!wire.made() && !next.empty()) {
    logger_.warn(fmt::format("{}; {} is used", wire.made().message(), next));
  }
  for (const std::uint32_t peer : peers) {
    if (wire.joins(rank_, peer)) {
      wire_to_[peer] = &wire;
    } else if (wire.made() && !next.empty()) {
      logger_.warn(fmt::format("rank {} and rank {} do not meet over {}; they use {}",
                               std::min(rank_, peer), std::max(rank_, peer), wire.name(), next));
    }
  }
}

/// An error if any two ranks have no wire, first if this rank is one of them.
Status Wires::check_pairs(std::span<const WireKind> kinds) const {
  for (std::uint32_t peer = 0; peer < wire_to_.size(); ++peer) {
    if (peer != rank_ && wire_to_[peer] == nullptr) return why_apart(rank_, peer, kinds);
  }
  for (std::uint32_t b = 1; b < control_.size(); ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      if (wire_between(a, b) == nullptr) return why_apart(a, b, kinds);
    }
  }
  return {};
}

/// Why no wire joins two ranks.
Status Wires::why_apart(std::uint32_t a, std::uint32_t b, std::span<const WireKind> kinds) const {
  const bool is_mine = a == rank_ || b == rank_;
  for (const auto& wire : wires_) {
    if (!wire->may_join(a, b)) continue;
    if (is_mine && !wire->made()) return wire->made();
    for (const std::uint32_t rank : {a, b}) {
      if (wire->has(rank)) continue;
      return failure(
          Code::unsupported,
          fmt::format("rank {} cannot use {}; its own message says why", rank, wire->name()), rank);
    }
    return failure(
        Code::unsupported,
        fmt::format("rank {} and rank {} do not meet over {}, and XYLEM_TRANSPORT allows "
                    "no other transport; use auto",
                    a, b, wire->name()),
        a == rank_ ? b : a);
  }
  std::vector<std::string_view> names;
  for (const WireKind& kind : kinds) names.emplace_back(kind.name);
  return failure(
      Code::unsupported,
      fmt::format("rank {} on {} and rank {} on {} have no transport in common: "
                  "XYLEM_TRANSPORT allows {}, which is for ranks of one host; use auto",
                  a, hosts_.peers()[a].host, b, hosts_.peers()[b].host, fmt::join(names, ", ")));
}

Status Wires::adopt(Token /*token*/, Encounter encounter) {
  Wire* const wire = wire_to_[encounter.rank];
  if (wire == nullptr) return {};
  const bool all_have_aes = std::ranges::all_of(hosts_.peers(), &PeerFacts::has_aes);
  const auto cipher =
      all_have_aes ? transport::Cipher::aes256_gcm : transport::Cipher::chacha20_poly1305;
  return wire->adopt(encounter.rank, {std::move(encounter.socket), options_.protection, cipher,
                                      encounter.keys.outgoing, encounter.keys.incoming});
}

Result<Link> Wires::link(Token /*token*/, std::uint32_t world_rank) {
  Wire* const wire = wire_to_[world_rank];
  return wire == nullptr ? Link() : wire->link(world_rank);
}

unsigned Wires::turn(Token /*token*/) {
  unsigned done = 0;
  for (auto* const transport : transports_) done += transport->progress();
  return done;
}

bool Wires::arm(Token /*token*/, std::vector<pollfd>& descriptors) {
  for (auto* const transport : transports_) {
    const auto armed = transport->arm();
    if (!armed || !*armed) return false;
    descriptors.push_back({transport->wake_fd(), POLLIN, 0});
  }
  return true;
}

bool Wires::needs_polling(Token /*token*/) const noexcept {
  return std::ranges::any_of(transports_, &transport::Transport::waits_for_device);
}

void Wires::discard(Token /*token*/, transport::Tag tag, transport::Tag mask) noexcept {
  for (auto* const transport : transports_) transport->discard(tag, mask);
}

void Wires::tick(Token /*token*/, Clock::time_point now) {
  constexpr auto kLookPeriod = std::chrono::milliseconds(500);
  if (now < next_look_) return;
  next_look_ = now + kLookPeriod;
  for (const auto& wire : wires_) wire->end_silent(now);
}

void Wires::give_up_meeting(Token /*token*/, std::uint32_t world_rank) noexcept {
  if (Wire* const wire = wire_to_[world_rank]) wire->give_up_meeting(world_rank);
}

void Wires::close(Token /*token*/, std::uint32_t world_rank) noexcept {
  if (Wire* const wire = wire_to_[world_rank]) wire->close(world_rank);
}

bool Wires::flush(Token /*token*/, std::uint32_t world_rank) noexcept {
  const Wire* const wire = wire_to_[world_rank];
  if (wire == nullptr) return true;
  const Link& link = wire->existing(world_rank);
  return link.transport == nullptr || link.transport->flush(link.endpoint);
}

transport::Capabilities Wires::capabilities(std::uint32_t world_rank) const noexcept {
  const Wire* const wire = wire_to_[world_rank];
  return wire == nullptr ? transport::Capabilities() : wire->transport()->capabilities();
}

std::uint64_t Wires::view_bytes(std::span<const std::uint32_t> world_ranks) const {
  const Wire* const wire =
      world_ranks.size() < 2 ? nullptr
                             : wire_to_[world_ranks[0] == rank_ ? world_ranks[1] : world_ranks[0]];
  if (wire == nullptr) return 0;
  // Wires without views and members that another wire reaches are the quick answers.
  transport::Views* const views = wire->transport()->views();
  const auto is_here = [&](std::uint32_t rank) { return rank == rank_ || wire_to_[rank] == wire; };
  if (views == nullptr || !std::ranges::all_of(world_ranks, is_here)) return 0;
  for (const std::uint32_t a : world_ranks) {
    for (const std::uint32_t b : world_ranks) {
      if (a < b && wire_between(a, b) != wire) return 0;
    }
  }
  return views->view_bytes();
}

void Wires::hold_wakes(bool held) noexcept {
  for (auto* const transport : transports_) {
    if (auto* const peers = transport->host_peers()) peers->hold_wakes(held);
  }
}

void Wires::show_computing(bool computes) noexcept {
  for (auto* const transport : transports_) {
    if (auto* const peers = transport->host_peers()) peers->show_computing(computes);
  }
}

bool Wires::do_peers_compute() const noexcept {
  return std::ranges::any_of(transports_, [](transport::Transport* transport) {
    const auto* const peers = transport->host_peers();
    return peers != nullptr && peers->do_peers_compute();
  });
}

void Wires::pull_from(Token /*token*/, std::uint64_t bytes) noexcept {
  for (auto* const transport : transports_) {
    if (auto* const views = transport->views()) views->pull_from(bytes);
  }
}

PathInfo Wires::path(std::uint32_t world_rank) const {
  PathInfo info;
  info.rank = world_rank;
  info.host = hosts_.peers()[world_rank].host;
  const Wire* const wire = wire_to_[world_rank];
  if (wire == nullptr) {
    info.transport = "self";
    return info;
  }
  info.transport = wire->name();
  const Link& link = wire->existing(world_rank);
  if (link.transport != nullptr) {
    for (const auto& path : link.transport->paths(link.endpoint)) {
      info.lanes.push_back(path.transport + "/" + path.device);
    }
    info.bytes_sent = link.transport->bytes_sent(link.endpoint);
  }
  return info;
}

}  // namespace xylem::runtime
