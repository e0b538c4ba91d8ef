// SPDX-License-Identifier: Apache-2.0
#include "wires/wires.h"

#include "wires/rdma_ports.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace xylem::runtime {
namespace {

using transport::Meeting;

/// Peers on one host answer within moments. If they do not in this time, the network is used.
constexpr std::chrono::seconds kLongestMeeting{5};

Result<Wire> make_host_wire(const Config& config,
                            const WireRequest& request,
                            const Logger& logger) {
  const transport::ShmOptions options{
      .endpoints = request.peers, .bytes = config.shared_memory.value, .devices = request.devices};
  Wire wire;
  wire.name = "shm";
  XYLEM_TRY(wire.transport, transport::make_shm(options, logger));
  return wire;
}

/// UCX 1.13 ends the process if it gets no descriptor for itself or for a connection.
Status check_descriptors(std::uint32_t peers) {
  constexpr std::uint64_t kItself = 16, kOfAPeer = 4;  // Observed: 12, and 4 per TCP peer.
  rlimit limit{};
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error || getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const auto in_use = static_cast<std::uint64_t>(std::distance(begin(open), end(open)));
  const std::uint64_t needed = in_use + kItself + kOfAPeer * peers;
  if (needed <= limit.rlim_cur) return {};
  return failure(
      Code::exhausted,
      fmt::format("UCX takes about {} descriptors for {} peer{}, and {} are in use: raise "
                  "ulimit -n from {} to {} or more",
                  needed - in_use, peers, peers == 1 ? "" : "s", in_use, limit.rlim_cur, needed));
}

/// How much each peer may send ahead of this rank's receives, so that the sum over all peers is
/// bounded.
std::uint64_t ahead_of_receives(std::uint32_t ranks) {
  constexpr std::uint64_t kLeast = 64 << 10, kMost = 1 << 20, kOfAll = 32 << 20;
  return std::clamp(kOfAll / std::max(ranks, 1U), kLeast, kMost);
}

Result<Wire> make_tcp_wire(std::uint32_t ranks,
                           const std::string& interface,
                           const Logger& logger) {
  Wire wire;
  wire.name = "tcp";
  XYLEM_TRY(wire.transport,
            transport::make_tcp({.device = interface, .ahead = ahead_of_receives(ranks)}, logger));
  return wire;
}

Result<Wire> make_ucx_wire(const Config& config,
                           const WireRequest& request,
                           const std::string& interface,
                           const Logger& logger) {
  XYLEM_TRY(check_descriptors(request.peers));
  const bool tcp = config.transport == "ucx-tcp";
  const std::string used = request.is_one_host ? "lo" : interface;
  transport::UcxOptions options;
  options.reach = tcp ? transport::UcxReach::tcp : transport::UcxReach::network;
  XYLEM_TRY(const auto found, transport::ucx_devices());
  XYLEM_TRY(options.devices,
            tcp ? choose_tcp_device(found, used) : choose_rdma_devices(found, config));
  if (tcp) {
    logger.warn(
        fmt::format("UCX listens on {} while the job runs, and believes whoever connects "
                    "there (docs/security.md); XYLEM_TRANSPORT=tcp listens to nobody",
                    used));
  }
  Wire wire;
  wire.name = tcp ? "ucx-tcp" : "ucx-rdma";
  XYLEM_TRY(wire.transport, transport::make_ucx(options, logger));
  return wire;
}

Result<Wire> make_network_wire(const Config& config,
                               const WireRequest& request,
                               const std::string& interface,
                               const Logger& logger) {
  const std::string& wanted = config.transport;
  const bool is_ours = wanted == "tcp" || (wanted == "auto" && !request.has_rdma);
  return is_ours ? make_tcp_wire(request.ranks, interface, logger)
                 : make_ucx_wire(config, request, interface, logger);
}

transport::HostPeers* host_peers_of(const Wire& wire) {
  return wire.transport == nullptr ? nullptr : wire.transport->host_peers();
}

}  // namespace

WireMaker configured_wires(const Config& config, std::string interface, const Logger& logger) {
  return [config, interface = std::move(interface), logger](const WireRequest& request) {
    return request.reach == Reach::host ? make_host_wire(config, request, logger)
                                        : make_network_wire(config, request, interface, logger);
  };
}

WireOptions wire_options(const Config& config, transport::DeviceMemory* devices) {
  const std::string& transport = config.transport;
  return {.use_host = transport == "auto" || transport == "shm",
          .require_host = transport == "shm",
          .protection = config.protection,
          .devices = devices,
          .meets_early = (transport == "auto" || transport == "tcp") && config.tuning != "off"};
}

Result<std::unique_ptr<Wires>> Wires::connect(ControlPlane& control,
                                              const PeerFacts& mine,
                                              const WireMaker& make,
                                              const WireOptions& options,
                                              WiresListener& listener,
                                              const Logger& logger,
                                              Deadline deadline) {
  std::unique_ptr<Wires> wires(new Wires(control, options, listener, logger));
  XYLEM_TRY(wires->exchange_facts(mine, deadline));
  wires->meet_early();
  const std::uint32_t local = wires->hosts().local_size();
  if (options.require_host && local != control.size()) {
    return failure(Code::unsupported,
                   fmt::format("XYLEM_TRANSPORT asks for shared memory, but only {} of {} ranks "
                               "share the host of rank {}; use auto",
                               local, control.size(), wires->rank_));
  }
  if (options.use_host) {
    XYLEM_TRY(wires->open_host(make, deadline));
  }
  if (wires->uses_network_) {
    XYLEM_TRY(wires->open_network(make, deadline));
  }
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
void Wires::meet_early() const {
  const auto& peers = hosts_.peers();
  if (rank_ != 0 || !options_.meets_early || std::ranges::all_of(peers, &PeerFacts::has_rdma)) {
    return;
  }
  for (std::uint32_t other = 1; other < peers.size(); ++other) {
    if (!hosts_.are_together(0, other)) return control_.ask_for(other);
  }
}

Status Wires::exchange_addresses(Reach reach, Deadline deadline) {
  const auto index = static_cast<std::size_t>(reach);
  const auto& transport = wires_[index].transport;
  const auto address = transport ? transport->address() : std::span<const std::byte>();
  XYLEM_TRY(addresses_[index], control_.all_gather(address, deadline));
  return {};
}

WireRequest Wires::request(Reach reach, std::uint32_t peers) const {
  return {.reach = reach,
          .peers = peers,
          .ranks = control_.size(),
          .has_rdma = std::ranges::all_of(hosts_.peers(), &PeerFacts::has_rdma),
          .is_one_host = hosts_.local_size() == control_.size(),
          .devices = options_.devices};
}

Status Wires::open_host(const WireMaker& make, Deadline deadline) {
  const auto hosts = hosts_.indices();
  // Each host has only one rank.
  if (1 + *std::ranges::max_element(hosts) == hosts.size()) return {};
  const std::uint32_t beside = hosts_.local_size();
  Status made;
  if (beside > 1) {
    auto wire = make(request(Reach::host, beside - 1));
    made = wire.status();
    if (wire) wires_[0] = std::move(wire).value();
  }
  // Ranks that cannot share memory say so by an empty address, so that nobody waits for them.
  XYLEM_TRY(exchange_addresses(Reach::host, deadline));
  if (options_.require_host) {
    XYLEM_TRY(all_share(made));
  }
  if (!made) logger_.warn(fmt::format("{}; the network is used", made.message()));
  XYLEM_TRY(const auto met, meet_host(deadline));
  XYLEM_TRY(const auto all_met, control_.all_gather(met, deadline));
  XYLEM_TRY(note_meetings(all_met));
  uses_network_ = hosts.size() != beside || !unmet_.empty();
  for (const auto& [a, b] : unmet_) {
    if (a != rank_ && b != rank_) continue;
    std::string what =
        fmt::format("rank {} and rank {} are on one host, but do not meet in shared memory", a, b);
    if (options_.require_host) return failure(Code::unsupported, std::move(what), a ^ b ^ rank_);
    logger_.warn(what + "; they use the network");
  }
  return {};
}

/// An error unless all ranks have an address in shared memory. `made` tells whether this rank has
/// its wire.
Status Wires::all_share(const Status& made) const {
  if (!made) return made;
  const auto& addresses = addresses_[0];
  const auto nobody = std::ranges::find_if(addresses, &std::vector<std::byte>::empty);
  if (nobody == addresses.end()) return {};
  const auto rank = static_cast<std::uint32_t>(nobody - addresses.begin());
  return failure(Code::unsupported, fmt::format("rank {} cannot share memory", rank), rank);
}

/// Notes who has met whom: all_met[a] has one byte for each rank on the host of a.
Status Wires::note_meetings(const std::vector<std::vector<std::byte>>& all_met) {
  const auto host_of = hosts_.indices();
  std::vector<std::vector<std::uint32_t>> hosts(all_met.size());
  for (std::uint32_t rank = 0; rank < all_met.size(); ++rank) hosts[host_of[rank]].push_back(rank);
  for (std::uint32_t a = 0; a < all_met.size(); ++a) {
    const auto& beside = hosts[host_of[a]];
    if (all_met[a].size() != beside.size()) {
      return failure(Code::mismatch,
                     fmt::format("rank {} says of {} ranks whether it met them, not of the {} on "
                                 "its host; it runs another build",
                                 a, all_met[a].size(), beside.size()),
                     a);
    }
    for (std::size_t i = 0; i < beside.size(); ++i) {
      if (beside[i] != a && all_met[a][i] == std::byte{0}) unmet_.insert(std::minmax(a, beside[i]));
    }
  }
  for (const std::uint32_t other : hosts[host_of[rank_]]) {
    const bool has_met = other != rank_ && !unmet_.contains(std::minmax(rank_, other));
    if (has_met) reach_[other] = Reach::host;
  }
  return {};
}

/// Connects to all ranks on this host. Returns one byte for each, itself included: 1 if the two
/// have met.
Result<std::vector<std::byte>> Wires::meet_host(Deadline deadline) {
  const auto beside = hosts_.local_ranks();
  std::vector<std::byte> met(beside.size());
  const auto& transport = wires_[0].transport;
  if (transport == nullptr) return met;
  for (const std::uint32_t other : beside) {
    const auto& address = addresses_[0][other];
    if (other == rank_ || address.empty()) continue;
    XYLEM_TRY(const auto endpoint, transport->connect(address));
    links_[other] = execution::link_over(*transport, endpoint);
  }
  const Deadline patience =
      Deadline::after(std::min<std::chrono::nanoseconds>(kLongestMeeting, deadline.left() / 2));
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const Link& link = links_[beside[i]];
    if (link.transport == nullptr) continue;
    while (transport->meeting(link.endpoint) == Meeting::waiting && !patience.passed()) {
      if (transport->progress() == 0) sched_yield();
    }
    met[i] = std::byte{transport->meeting(link.endpoint) == Meeting::met};
  }
  return met;
}

Status Wires::open_network(const WireMaker& make, Deadline deadline) {
  std::uint32_t peers = 0;
  for (std::uint32_t other = 0; other < reach_.size(); ++other) {
    if (other == rank_ || reach_[other] != Reach::network) continue;
    ++peers;
    // The link to a rank that was not met in shared memory is closed.
    if (Link& link = links_[other]; link.transport != nullptr) {
      link.transport->close(link.endpoint);
      link = {};
    }
  }
  if (peers > 0) {
    XYLEM_TRY(wires_[1], make(request(Reach::network, peers)));
  }
  tcp_ = dynamic_cast<transport::TcpTransport*>(wires_[1].transport.get());
  if (tcp_ != nullptr) tcp_->set_owner(this);
  return exchange_addresses(Reach::network, deadline);
}

std::uint32_t Wires::rank_behind(transport::EndpointId endpoint) const noexcept {
  const auto found = std::ranges::find_if(links_, [&](const Link& link) {
    return link.transport == tcp_ && link.endpoint == endpoint;
  });
  return static_cast<std::uint32_t>(found - links_.begin());
}

void Wires::on_wanted(transport::EndpointId endpoint) { control_.ask_for(rank_behind(endpoint)); }

void Wires::on_lost(transport::EndpointId endpoint, const Status& why) {
  listener_.on_link_lost(rank_behind(endpoint), why);
}

Status Wires::adopt(Token token, Encounter encounter) {
  if (tcp_ == nullptr || reach_[encounter.rank] != Reach::network) return {};
  XYLEM_TRY(const Link link, this->link(token, encounter.rank));
  const bool all_have_aes = std::ranges::all_of(hosts_.peers(), &PeerFacts::has_aes);
  const auto cipher =
      all_have_aes ? transport::Cipher::aes256_gcm : transport::Cipher::chacha20_poly1305;
  return tcp_->adopt(link.endpoint, {std::move(encounter.socket), options_.protection, cipher,
                                     encounter.keys.outgoing, encounter.keys.incoming});
}

Result<Link> Wires::link(Token /*token*/, std::uint32_t world_rank) {
  Link& link = links_[world_rank];
  if (world_rank == rank_ || link.transport != nullptr) return link;
  const std::size_t index = wire_of(world_rank);
  auto& transport = *wires_[index].transport;
  XYLEM_TRY(const auto endpoint, transport.connect(addresses_[index][world_rank]));
  link = execution::link_over(transport, endpoint);
  return link;
}

unsigned Wires::turn(Token /*token*/) {
  unsigned done = 0;
  for (const Wire& wire : wires_) {
    if (wire.transport != nullptr) done += wire.transport->progress();
  }
  return done;
}

bool Wires::arm(Token /*token*/, std::vector<pollfd>& descriptors) {
  for (const Wire& wire : wires_) {
    if (wire.transport == nullptr) continue;
    const auto armed = wire.transport->arm();
    if (!armed || !*armed) return false;
    descriptors.push_back({wire.transport->wake_fd(), POLLIN, 0});
  }
  return true;
}

bool Wires::needs_polling(Token /*token*/) const noexcept {
  return std::ranges::any_of(wires_, [](const Wire& wire) {
    return wire.transport != nullptr && wire.transport->waits_for_device();
  });
}

void Wires::discard(Token /*token*/, transport::Tag tag, transport::Tag mask) noexcept {
  for (const Wire& wire : wires_) {
    if (wire.transport != nullptr) wire.transport->discard(tag, mask);
  }
}

void Wires::tick(Token /*token*/, Clock::time_point now) {
  constexpr auto kLookPeriod = std::chrono::milliseconds(500);
  if (tcp_ == nullptr || now < next_look_) return;
  next_look_ = now + kLookPeriod;
  tcp_->end_silent(now);
}

void Wires::give_up_meeting(Token /*token*/, std::uint32_t world_rank) noexcept {
  const Link& link = links_[world_rank];
  if (tcp_ == nullptr || link.transport != tcp_ || tcp_->has_met(link.endpoint)) return;
  tcp_->close(link.endpoint);
}

void Wires::close(Token /*token*/, std::uint32_t world_rank) noexcept {
  const Link& link = links_[world_rank];
  if (link.transport != nullptr) link.transport->close(link.endpoint);
}

bool Wires::flush(Token /*token*/, std::uint32_t world_rank) noexcept {
  const Link& link = links_[world_rank];
  return link.transport == nullptr || link.transport->flush(link.endpoint);
}

transport::Capabilities Wires::capabilities(std::uint32_t world_rank) const noexcept {
  const auto& transport = wires_[wire_of(world_rank)].transport;
  if (world_rank == rank_ || transport == nullptr) return {};
  return transport->capabilities();
}

std::uint64_t Wires::view_bytes(std::span<const std::uint32_t> world_ranks) const noexcept {
  const auto& transport = wires_[0].transport;
  if (transport == nullptr || world_ranks.size() < 2) return 0;
  const auto has = [&](std::uint32_t rank) {
    return std::ranges::find(world_ranks, rank) != world_ranks.end();
  };
  const bool share =
      std::ranges::all_of(world_ranks,
                          [&](std::uint32_t b) { return hosts_.are_together(rank_, b); }) &&
      std::ranges::none_of(unmet_,
                           [&](const auto& pair) { return has(pair.first) && has(pair.second); });
  transport::Views* const views = transport->views();
  return share && views != nullptr ? views->view_bytes() : 0;
}

void Wires::hold_wakes(bool held) noexcept {
  for (const Wire& wire : wires_) {
    if (auto* const host_peers = host_peers_of(wire)) host_peers->hold_wakes(held);
  }
}

void Wires::show_computing(bool computes) noexcept {
  for (const Wire& wire : wires_) {
    if (auto* const host_peers = host_peers_of(wire)) host_peers->show_computing(computes);
  }
}

bool Wires::do_peers_compute() const noexcept {
  return std::ranges::any_of(wires_, [](const Wire& wire) {
    const auto* const host_peers = host_peers_of(wire);
    return host_peers != nullptr && host_peers->do_peers_compute();
  });
}

void Wires::pull_from(Token /*token*/, std::uint64_t bytes) noexcept {
  const auto& transport = wires_[0].transport;
  if (transport == nullptr) return;
  if (transport::Views* const views = transport->views()) views->pull_from(bytes);
}

PathInfo Wires::path(std::uint32_t world_rank) const {
  PathInfo info;
  info.rank = world_rank;
  info.host = hosts_.peers()[world_rank].host;
  if (world_rank == rank_) {
    info.transport = "self";
    return info;
  }
  info.transport = wires_[wire_of(world_rank)].name;
  const Link& link = links_[world_rank];
  if (link.transport != nullptr) {
    for (const auto& path : link.transport->paths(link.endpoint)) {
      info.lanes.push_back(path.transport + "/" + path.device);
    }
    info.bytes_sent = link.transport->bytes_sent(link.endpoint);
  }
  return info;
}

}  // namespace xylem::runtime
