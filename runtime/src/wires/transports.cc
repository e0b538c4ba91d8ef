// SPDX-License-Identifier: Apache-2.0
#include "wires/transports.h"

#include "wires/rdma_ports.h"
#include "xylem/transport/shm.h"
#include "xylem/transport/tcp.h"
#include "xylem/transport/ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

using transport::Transport;

bool are_on_one_host(const PeerFacts& a, const PeerFacts& b) { return a.kernel == b.kernel; }
bool are_any(const PeerFacts& /*a*/, const PeerFacts& /*b*/) { return true; }
bool have_rdma(const PeerFacts& a, const PeerFacts& b) { return a.has_rdma && b.has_rdma; }

/// Fails if there are not enough free descriptors for UCX and its connections to this number of
/// peers. Without descriptors, UCX 1.13 ends the process.
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

/// How many bytes each peer may send before this rank posts receives for them. It is smaller in
/// larger jobs, to limit the sum over all peers.
std::uint64_t ahead_of_receives(std::uint32_t ranks) {
  constexpr std::uint64_t kLeast = 64 << 10, kMost = 1 << 20, kOfAll = 32 << 20;
  return std::clamp(kOfAll / std::max(ranks, 1U), kLeast, kMost);
}

WireKind shm_wire(const Config& config, transport::DeviceMemory* devices, const Logger& logger) {
  const auto make = [bytes = config.shared_memory.value, devices, logger](std::uint32_t peers) {
    return transport::make_shm({.endpoints = peers, .bytes = bytes, .devices = devices}, logger);
  };
  return {.name = "shm",
          .joins = "ranks with the same boot id, namespaces and user",
          .may_join = are_on_one_host,
          .make = make,
          .probes_at_start = true,
          .satisfies = Requirement::shm};
}

WireKind tcp_wire(std::uint32_t ranks, const std::string& interface, const Logger& logger) {
  const auto make = [=](std::uint32_t /*peers*/) {
    return transport::make_tcp({.device = interface, .ahead = ahead_of_receives(ranks)}, logger);
  };
  return {.name = "tcp",
          .joins = "all ranks",
          .may_join = are_any,
          .make = make,
          .has_connections = true,
          .satisfies = Requirement::tcp};
}

WireKind ucx_tcp_wire(const std::string& interface, const Logger& logger) {
  const auto make = [=](std::uint32_t peers) -> Result<std::unique_ptr<Transport>> {
    XYLEM_TRY(check_descriptors(peers));
    transport::UcxOptions options;
    options.reach = transport::UcxReach::tcp;
    XYLEM_TRY(const auto found, transport::ucx_devices());
    XYLEM_TRY(options.devices, choose_tcp_device(found, interface));
    logger.warn(
        fmt::format("UCX listens on {} while the job runs, and believes whoever connects "
                    "there (docs/security.md); XYLEM_TRANSPORT=tcp listens to nobody",
                    interface));
    return transport::make_ucx(options, logger);
  };
  return {.name = "ucx-tcp",
          .joins = "all ranks",
          .may_join = are_any,
          .make = make,
          .satisfies = Requirement::tcp};
}

WireKind ucx_rdma_wire(const Config& config, const Logger& logger) {
  const auto make = [=](std::uint32_t peers) -> Result<std::unique_ptr<Transport>> {
    XYLEM_TRY(check_descriptors(peers));
    transport::UcxOptions options;
    options.reach = transport::UcxReach::network;
    XYLEM_TRY(const auto found, transport::ucx_devices());
    XYLEM_TRY(options.devices, choose_rdma_devices(found, config));
    return transport::make_ucx(options, logger);
  };
  // If the user asks for this transport by name, a rank without RDMA must fail to make it.
  const bool is_named = config.transport == "ucx-rdma";
  return {.name = "ucx-rdma",
          .joins = is_named ? "all ranks" : "ranks with usable RDMA devices",
          .may_join = is_named ? are_any : have_rdma,
          .make = make,
          .satisfies = Requirement::rdma};
}

/// If only some ranks can use RDMA: the hosts of the others, as text.
std::optional<std::string> hosts_without_rdma(const Hosts& hosts) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> names;
  std::size_t more = 0;
  bool has_any = false;
  for (const PeerFacts& peer : hosts.peers()) {
    has_any = has_any || peer.has_rdma;
    if (peer.has_rdma || std::ranges::find(names, peer.host) != names.end()) continue;
    if (names.size() < kMost) {
      names.push_back(peer.host);
    } else {
      ++more;
    }
  }
  if (!has_any || names.empty()) return std::nullopt;
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more ranks", more));
}

}  // namespace

WireKinds configured_wires(const Config& config, const Logger& logger) {
  return [config, logger](const Hosts& hosts, transport::DeviceMemory* devices) {
    const std::string& interface = hosts.port(hosts.rank()).interface;
    const std::string& wanted = config.transport;
    const bool is_auto = wanted == "auto";
    const bool some_have_rdma = std::ranges::any_of(hosts.peers(), &PeerFacts::has_rdma);
    const auto size = static_cast<std::uint32_t>(hosts.peers().size());
    std::vector<WireKind> kinds;
    if (is_auto || wanted == "shm") kinds.push_back(shm_wire(config, devices, logger));
    if (wanted == "ucx-rdma" || (is_auto && some_have_rdma)) {
      kinds.push_back(ucx_rdma_wire(config, logger));
    }
    if (wanted == "tcp" || is_auto) kinds.push_back(tcp_wire(size, interface, logger));
    if (const auto lacking = hosts_without_rdma(hosts); is_auto && lacking && hosts.rank() == 0) {
      logger.warn(
          fmt::format("no usable RDMA devices on {}: messages between hosts to and from "
                      "there use tcp",
                      *lacking));
    }
    if (wanted == "ucx-tcp") {
      kinds.push_back(ucx_tcp_wire(hosts.local_size() == size ? "lo" : interface, logger));
    }
    return kinds;
  };
}

}  // namespace xylem::runtime
