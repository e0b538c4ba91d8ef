// SPDX-License-Identifier: Apache-2.0
#include "wires/peer_facts.h"

#include "wires/rdma_ports.h"
#include "xylem/base/hash.h"
#include "xylem/transport/seal.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

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

/// Removes one text from the front of the blob. False if the blob is too short.
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

/// Removes the ports from the end of the blob. False if the last one is not whole.
bool take(std::span<const std::byte>& blob, std::vector<Port>& ports) {
  while (!blob.empty()) {
    Port& port = ports.emplace_back();
    for (std::string* text : {&port.interface, &port.network, &port.address, &port.text}) {
      if (!take(blob, *text)) return false;
    }
  }
  return true;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

PeerFacts own_facts(const LoadedConfig& loaded, const Logger& logger) {
  PeerFacts facts;
  facts.host = host_name();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  facts.kernel = combine(combine(hash_text(boot), inode_of("/proc/self/ns/net")),
                         combine(inode_of("/proc/self/ns/ipc"), geteuid()));
  facts.machine = hash_text(loaded.config.machine.empty() ? boot : loaded.config.machine);
  facts.cores = own_cores();
  facts.quota = core_quota().value_or(0);
  facts.has_rdma = has_rdma(loaded.config, logger);
  facts.has_aes = transport::has_aes();
  facts.settings = agreed_settings(loaded);
  return facts;
}

std::vector<Port> ports_of(const std::vector<Interface>& interfaces) {
  std::vector<Port> ports;
  ports.reserve(interfaces.size());
  for (const Interface& each : interfaces)
    ports.push_back({each.name, each.network, each.address.host(), port_text(each.name)});
  return ports;
}

std::vector<std::byte> encode(const PeerFacts& facts) {
  Blob blob;
  put(blob, facts.host);
  put(blob, std::to_string(facts.kernel));
  put(blob, std::to_string(facts.machine));
  put(blob, to_text(facts.cores));
  put(blob, std::to_string(facts.quota));
  put(blob, facts.has_rdma ? "rdma" : "");
  put(blob, facts.has_aes ? "aes" : "");
  put(blob, facts.settings);
  for (const Port& port : facts.ports) {
    for (const std::string* text : {&port.interface, &port.network, &port.address, &port.text})
      put(blob, *text);
  }
  return blob;
}

Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob) {
  PeerFacts facts;
  std::string kernel, machine, cores, quota, rdma, aes;
  const bool whole = take(blob, facts.host) && take(blob, kernel) && take(blob, machine) &&
                     take(blob, cores) && take(blob, quota) && take(blob, rdma) &&
                     take(blob, aes) && take(blob, facts.settings);
  auto core_set = parse_cores(cores);
  if (!whole || !core_set || !take(blob, facts.ports)) {
    return failure(
        Code::mismatch,
        fmt::format("rank {} sent facts about itself that cannot be read; it runs another build",
                    rank),
        rank);
  }
  facts.kernel = std::strtoull(kernel.c_str(), nullptr, 10);
  facts.machine = std::strtoull(machine.c_str(), nullptr, 10);
  facts.cores = *std::move(core_set);
  facts.quota = static_cast<std::uint32_t>(std::strtoul(quota.c_str(), nullptr, 10));
  facts.has_rdma = !rdma.empty();
  facts.has_aes = !aes.empty();
  return facts;
}

Status compare_settings(std::uint32_t rank_a,
                        const PeerFacts& a,
                        std::uint32_t rank_b,
                        const PeerFacts& b) {
  if (a.settings == b.settings) return {};
  std::istringstream lines_a(a.settings), lines_b(b.settings);
  std::string line_a, line_b;
  while (std::getline(lines_a, line_a) && std::getline(lines_b, line_b) && line_a == line_b) {
  }
  return failure(Code::mismatch,
                 fmt::format("rank {} has {} and rank {} has {}; all ranks must agree on it",
                             rank_a, line_a, rank_b, line_b),
                 rank_b);
}

}  // namespace xylem::runtime
