// SPDX-License-Identifier: Apache-2.0
#include "wires/peer_facts.h"

#include "wires/rdma_ports.h"
#include "xylem/base/hash.h"
#include "xylem/transport/seal.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
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

/// Removes the first line from the text. Empty if no line is left.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
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
  const Status rdma = find_rdma(loaded.config, logger);
  facts.has_rdma = rdma.is_ok();
  facts.why_no_rdma = rdma.message();
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
  put(blob, facts.why_no_rdma);
  put(blob, facts.has_aes ? "aes" : "");
  put(blob, facts.settings);
  for (const Port& port : facts.ports) {
    for (const std::string* text : {&port.interface, &port.network, &port.address, &port.text})
      put(blob, *text);
  }
  return blob;
}

Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob) {
  const std::span<const std::byte> sent = blob;
  PeerFacts facts;
  std::string kernel, machine, cores, quota, rdma, aes;
  const bool whole = take(blob, facts.host) && take(blob, kernel) && take(blob, machine) &&
                     take(blob, cores) && take(blob, quota) && take(blob, rdma) &&
                     take(blob, facts.why_no_rdma) && take(blob, aes) &&
                     take(blob, facts.settings) && take(blob, facts.ports);
  facts.kernel = std::strtoull(kernel.c_str(), nullptr, 10);
  facts.machine = std::strtoull(machine.c_str(), nullptr, 10);
  facts.cores = parse_cores(cores).value_or(CoreSet());
  facts.quota = static_cast<std::uint32_t>(std::strtoul(quota.c_str(), nullptr, 10));
  facts.has_rdma = !rdma.empty();
  facts.has_aes = !aes.empty();
  // The parsers above accept more texts than encode() writes, such as "-1" and "2 cores".
  if (whole && std::ranges::equal(encode(facts), sent)) return facts;
  return failure(
      Code::mismatch,
      fmt::format("rank {} sent facts about itself that cannot be read: it runs another build, so "
                  "start all ranks with the same Xylem",
                  rank),
      rank);
}

Status compare_settings(std::uint32_t rank_a,
                        const PeerFacts& a,
                        std::uint32_t rank_b,
                        const PeerFacts& b) {
  if (a.settings == b.settings) return {};
  std::string_view left_a = a.settings, left_b = b.settings, line_a, line_b;
  do {
    line_a = take_line(left_a);
    line_b = take_line(left_b);
  } while (line_a == line_b && !(left_a.empty() && left_b.empty()));
  const auto shown = [](std::string_view line) { return line.empty() ? "no such setting" : line; };
  return failure(Code::mismatch,
                 fmt::format("rank {} has {} and rank {} has {}; all ranks must agree on it",
                             rank_a, shown(line_a), rank_b, shown(line_b)),
                 rank_b);
}

}  // namespace xylem::runtime
