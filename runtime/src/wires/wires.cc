// SPDX-License-Identifier: Apache-2.0
#include "wires/wires.h"

#include "wires/rails.h"
#include "wires/requirement.h"
#include "xylem/transport/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ranges>
#include <string>

namespace xylem::runtime {

WireOptions wire_options(const Config& config, transport::DeviceMemory* devices) {
  return {.protection = config.protection,
          .devices = devices,
          .connects_early = config.tuning != "off",
          .require = config.require,
          .may_use_tcp = config.transport == "auto" || config.transport == "tcp"};
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
  if (options.may_use_tcp) XYLEM_TRY(choose_rails(control, wires->hosts_, logger, deadline));
  const auto of_job = kinds(wires->hosts_, options.devices);
  wires->connect_early(of_job);
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

/// Requests the connection that measure.h needs: between rank 0 and the first rank of another host.
void Wires::connect_early(std::span<const WireKind> kinds) const {
  if (rank_ != 0 || !options_.connects_early) return;
  const auto& peers = hosts_.peers();
  for (std::uint32_t other = 1; other < peers.size(); ++other) {
    if (hosts_.are_together(0, other)) continue;
    const auto kind = std::ranges::find_if(
        kinds, [&](const WireKind& each) { return each.may_join(peers[0], peers[other]); });
    if (kind != kinds.end() && kind->has_connections) control_.request_connection(other);
    return;
  }
}

Status Wires::open(std::span<const WireKind> kinds, Deadline deadline) {
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    wires_.push_back(std::make_unique<Wire>(kinds[kind], hosts_, control_, listener_, logger_));
    Wire& wire = *wires_.back();
    std::vector<std::uint32_t> peers;
    for (std::uint32_t peer = 0; peer < wire_to_.size(); ++peer) {
      const bool needs_one = peer != rank_ && wire_to_[peer] == nullptr;
      if (needs_one && wire.may_join(rank_, peer)) peers.push_back(peer);
    }
    XYLEM_TRY(wire.open(peers, deadline));
    if (wire.transport() != nullptr) transports_.push_back(wire.transport());
    for (const std::uint32_t peer : peers) {
      if (wire.joins(rank_, peer)) wire_to_[peer] = &wire;
    }
    warn_of_next(wire, peers, kinds.subspan(kind + 1));
  }
  XYLEM_TRY(check_requirement(deadline));
  for (std::uint32_t peer = 0; peer < wire_to_.size(); ++peer) {
    if (peer != rank_ && wire_to_[peer] == nullptr) return why_apart(peer);
  }
  return {};
}

/// Each rank checks its own pairs, and publishes whether one of them fails. All ranks then describe
/// the same pair: the first one of the first rank with such a pair.
Status Wires::check_requirement(Deadline deadline) const {
  if (options_.require == Requirement::none) return {};
  const auto first_unsatisfied = [&](std::uint32_t rank) {
    std::uint32_t peer = rank + 1;
    while (peer < wire_to_.size() &&
           satisfies(options_.require, hosts_, rank, peer, wire_between(rank, peer))) {
      ++peer;
    }
    return peer;
  };
  const std::byte fails{first_unsatisfied(rank_) < wire_to_.size()};
  XYLEM_TRY(const auto all, control_.all_gather({&fails, 1}, deadline));
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == std::vector{std::byte{0}}) continue;
    const std::uint32_t peer = first_unsatisfied(rank);
    if (peer < wire_to_.size()) {
      return unsatisfied(options_.require, hosts_, wires_, rank, peer, wire_between(rank, peer));
    }
    return failure(Code::mismatch,
                   fmt::format("rank {} reports a pair that does not satisfy XYLEM_REQUIRE, but "
                               "rank {} finds none: start all ranks with the same Xylem",
                               rank, rank_),
                   rank);
  }
  return {};
}

/// Warns of the peers that `wire` does not reach and that a later kind of transport may reach. For
/// a peer that no later kind may reach, open() fails.
void Wires::warn_of_next(const Wire& wire,
                         std::span<const std::uint32_t> peers,
                         std::span<const WireKind> later) const {
  for (const std::uint32_t peer : peers) {
    if (wire_to_[peer] != nullptr) continue;
    const auto next = std::ranges::find_if(later, [&](const WireKind& kind) {
      return kind.may_join(hosts_.peers()[rank_], hosts_.peers()[peer]);
    });
    if (next == later.end()) continue;
    logger_.warn(fmt::format("{}; {} is used", wire.why_apart(rank_, peer).message(), next->name));
    if (!wire.made()) return;  // The reason is the same for all peers.
  }
}

/// Why no wire joins this rank and a peer: the failure of the last kind that may join them.
Status Wires::why_apart(std::uint32_t peer) const {
  std::vector<std::string> names;
  for (const auto& wire : std::views::reverse(wires_)) {
    if (wire->may_join(rank_, peer)) return wire->why_apart(rank_, peer);
    names.push_back(wire->name() + " joins " + wire->joins_what());
  }
  return failure(
      Code::unsupported,
      fmt::format("no transport that XYLEM_TRANSPORT allows joins rank {} on {} and rank {} on {} "
                  "({}); use XYLEM_TRANSPORT=auto",
                  rank_, hosts_.peers()[rank_].host, peer, hosts_.peers()[peer].host,
                  fmt::join(names, ", ")),
      peer);
}

/// The wire that two ranks use, or null. The same on all ranks.
const Wire* Wires::wire_between(std::uint32_t a, std::uint32_t b) const {
  const auto found =
      std::ranges::find_if(wires_, [&](const auto& wire) { return wire->joins(a, b); });
  return found == wires_.end() ? nullptr : found->get();
}

Status Wires::adopt(Token /*token*/, PayloadConnection connection) {
  Wire* const wire = wire_to_[connection.rank];
  if (wire == nullptr) return {};
  const bool all_have_aes = std::ranges::all_of(hosts_.peers(), &PeerFacts::has_aes);
  const auto cipher =
      all_have_aes ? transport::Cipher::aes256_gcm : transport::Cipher::chacha20_poly1305;
  return wire->adopt(connection.rank, {std::move(connection.socket), options_.protection, cipher,
                                       connection.keys.outgoing, connection.keys.incoming});
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
  constexpr auto kSilenceCheckPeriod = std::chrono::milliseconds(500);
  if (now < next_silence_check_) return;
  next_silence_check_ = now + kSilenceCheckPeriod;
  for (const auto& wire : wires_) wire->end_silent(now);
}

void Wires::close_unconnected(Token /*token*/, std::uint32_t world_rank) noexcept {
  if (Wire* const wire = wire_to_[world_rank]) wire->close_unconnected(world_rank);
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
  // The cheap checks come first.
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

transport::Traffic Wires::traffic(Token /*token*/) const noexcept {
  transport::Traffic sum;
  for (std::uint32_t rank = 0; rank < wire_to_.size(); ++rank) {
    const Wire* const wire = wire_to_[rank];
    const Link link = wire == nullptr ? Link() : wire->existing(rank);
    if (link.transport != nullptr) sum += link.transport->traffic(link.endpoint);
  }
  return sum;
}

PathInfo Wires::path(std::uint32_t world_rank) const {
  PathInfo info;
  info.rank = world_rank;
  info.host = hosts_.peers()[world_rank].host;
  info.port = hosts_.port(world_rank).text;
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
    info.bytes_sent = link.transport->traffic(link.endpoint).bytes;
  }
  return info;
}

}  // namespace xylem::runtime
