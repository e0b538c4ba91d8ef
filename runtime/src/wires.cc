// SPDX-License-Identifier: Apache-2.0
#include "wires.h"

#include "devices.h"
#include "xylem/base/hash.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace xylem::runtime {
namespace {

using Blob = std::vector<std::byte>;

std::uint64_t inode_of(const char* path) {
  struct stat facts {};
  return stat(path, &facts) == 0 ? facts.st_ino : 0;
}

void put(Blob& blob, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  const auto* head = reinterpret_cast<const std::byte*>(&size);
  blob.insert(blob.end(), head, head + sizeof size);
  const auto* body = reinterpret_cast<const std::byte*>(text.data());
  blob.insert(blob.end(), body, body + text.size());
}

/// Takes one text off the front; false if the blob is cut short.
bool take(std::span<const std::byte>& blob, std::string& text) {
  std::uint32_t size = 0;
  if (blob.size() < sizeof size) return false;
  std::memcpy(&size, blob.data(), sizeof size);
  blob = blob.subspan(sizeof size);
  if (blob.size() < size) return false;
  text.assign(reinterpret_cast<const char*>(blob.data()), size);
  blob = blob.subspan(size);
  return true;
}

Blob encode(const PeerFacts& facts) {
  Blob blob;
  put(blob, facts.host);
  put(blob, std::to_string(facts.kernel));
  put(blob, to_text(facts.cores));
  put(blob, facts.settings);
  return blob;
}

Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob) {
  PeerFacts facts;
  std::string kernel, cores;
  const bool whole = take(blob, facts.host) && take(blob, kernel) && take(blob, cores) &&
                     take(blob, facts.settings);
  auto core_set = parse_cores(cores);
  if (!whole || !core_set) {
    return failure(
        Code::mismatch,
        fmt::format("rank {} sent facts about itself that cannot be read; it runs another build",
                    rank),
        rank);
  }
  facts.kernel = std::strtoull(kernel.c_str(), nullptr, 10);
  facts.cores = *std::move(core_set);
  return facts;
}

/// OK, or a mismatch that names the first setting in which the two differ.
Status compare_settings(std::uint32_t mine,
                        const std::string& my_text,
                        std::uint32_t theirs,
                        const std::string& their_text) {
  if (my_text == their_text) return {};
  std::istringstream my_lines(my_text), their_lines(their_text);
  std::string my_line, their_line;
  while (std::getline(my_lines, my_line) && std::getline(their_lines, their_line) &&
         my_line == their_line) {
  }
  return failure(Code::mismatch,
                 fmt::format("rank {} has {} and rank {} has {}; all ranks must agree on it", mine,
                             my_line, theirs, their_line),
                 theirs);
}

}  // namespace

PeerFacts own_facts(const LoadedConfig& loaded) {
  PeerFacts facts;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  facts.host = name.data();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  facts.kernel = combine(combine(hash_text(boot), inode_of("/proc/self/ns/net")),
                         inode_of("/proc/self/ns/ipc"));
  facts.cores = own_cores();
  facts.settings = agreed_settings(loaded);
  return facts;
}

WireMaker ucx_wires(const Config& config, std::string interface, const Logger& logger) {
  return [config, interface = std::move(interface), logger](Reach reach) -> Result<Wire> {
    transport::UcxOptions options;
    const bool tcp = config.transport == "ucx-tcp";
    if (reach == Reach::host) {
      options.reach = transport::UcxReach::host;
    } else {
      options.reach = tcp ? transport::UcxReach::tcp : transport::UcxReach::network;
      XYLEM_TRY(const auto found, transport::ucx_devices());
      XYLEM_TRY(options.devices, choose_devices(found, config, interface, tcp));
    }
    Wire wire;
    wire.name = reach == Reach::host ? "ucx-shm" : tcp ? "ucx-tcp" : "ucx-network";
    XYLEM_TRY(wire.transport, transport::make_ucx(options, logger));
    return wire;
  };
}

Result<Wires> Wires::connect(ControlPlane& control,
                             const PeerFacts& mine,
                             const WireMaker& make,
                             bool force_network,
                             Deadline deadline) {
  Wires wires;
  wires.rank_ = control.rank();
  wires.force_network_ = force_network;
  wires.links_.resize(control.size());
  XYLEM_TRY(const auto facts, control.all_gather(encode(mine), deadline));
  for (std::uint32_t rank = 0; rank < control.size(); ++rank) {
    XYLEM_TRY(auto peer, decode(rank, facts[rank]));
    XYLEM_TRY(compare_settings(wires.rank_, mine.settings, rank, peer.settings));
    wires.peers_.push_back(std::move(peer));
  }
  wires.wires_.resize(2);
  for (std::uint32_t rank = 0; rank < control.size(); ++rank) {
    if (rank == wires.rank_) continue;
    const std::size_t index = wires.wire_of(rank);
    if (wires.wires_[index].transport != nullptr) continue;
    XYLEM_TRY(wires.wires_[index], make(index == 0 ? Reach::host : Reach::network));
  }
  for (std::size_t index = 0; index < 2; ++index) {
    const auto& transport = wires.wires_[index].transport;
    const auto address = transport ? transport->address() : std::span<const std::byte>();
    XYLEM_TRY(wires.addresses_[index], control.all_gather(address, deadline));
  }
  return wires;
}

std::size_t Wires::wire_of(std::uint32_t world_rank) const noexcept {
  return !force_network_ && same_host(rank_, world_rank) ? 0 : 1;
}

Result<Link> Wires::link(std::uint32_t world_rank) {
  Link& link = links_[world_rank];
  if (world_rank == rank_ || link.transport != nullptr) return link;
  const std::size_t index = wire_of(world_rank);
  auto& transport = *wires_[index].transport;
  XYLEM_TRY(const auto endpoint, transport.connect(addresses_[index][world_rank]));
  link = {&transport, endpoint};
  return link;
}

void Wires::close(std::uint32_t world_rank) noexcept {
  const Link& link = links_[world_rank];
  if (link.transport != nullptr) {
    link.transport->close(link.endpoint);
  } else if (const auto& transport = wires_[wire_of(world_rank)].transport) {
    transport->note_death();
  }
}

bool Wires::flush(std::uint32_t world_rank) noexcept {
  const Link& link = links_[world_rank];
  return link.transport == nullptr || link.transport->flush(link.endpoint);
}

std::uint32_t Wires::local_cores() const {
  std::vector<CoreSet> sets;
  for (const auto& peer : peers_) {
    if (peer.kernel == peers_[rank_].kernel) sets.push_back(peer.cores);
  }
  return cores_together(sets, core_quota());
}

std::vector<std::uint32_t> Wires::host_indices() const {
  std::map<std::uint64_t, std::uint32_t> seen;
  std::vector<std::uint32_t> indices;
  indices.reserve(peers_.size());
  for (const auto& peer : peers_) {
    indices.push_back(
        seen.try_emplace(peer.kernel, static_cast<std::uint32_t>(seen.size())).first->second);
  }
  return indices;
}

PathInfo Wires::path(std::uint32_t world_rank) const {
  PathInfo info;
  info.rank = world_rank;
  info.host = peers_[world_rank].host;
  if (world_rank == rank_) {
    info.transport = "self";
    return info;
  }
  info.transport = wires_[wire_of(world_rank)].name;
  const Link& link = links_[world_rank];
  if (link.transport != nullptr) {
    for (const auto& lane : link.transport->lanes(link.endpoint)) {
      info.lanes.push_back(lane.transport + "/" + lane.device);
    }
    info.bytes_sent = link.transport->bytes_sent(link.endpoint);
  }
  return info;
}

}  // namespace xylem::runtime
