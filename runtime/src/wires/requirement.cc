// SPDX-License-Identifier: Apache-2.0
#include "wires/requirement.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace xylem::runtime {
namespace {

/// How a requirement is written, what it demands, and what to do if it is not satisfied.
struct Words {
  std::string_view value, demand, remedy;
};

Words words_of(Requirement required) {
  switch (required) {
    case Requirement::none: break;
    case Requirement::shm:
      return {"shm", "shared memory between all ranks",
              "start all ranks on one host, with XYLEM_TRANSPORT=auto"};
    case Requirement::tcp:
      return {"tcp", "TCP between ranks on different hosts", "set XYLEM_TRANSPORT=tcp"};
    case Requirement::rdma:
      return {"rdma", "RDMA between ranks on different hosts",
              "let UCX use an RDMA device on each host (`xylem info` lists them), with "
              "XYLEM_TRANSPORT=auto"};
  }
  return {};
}

/// Why two ranks do not use a wire that satisfies the requirement. Empty if the wire that they use
/// is merely preferred, or if the reason is unknown.
std::string reason(Requirement required,
                   const Hosts& hosts,
                   std::span<const std::unique_ptr<Wire>> wires,
                   std::uint32_t a,
                   std::uint32_t b,
                   const Wire* used) {
  for (const auto& wire : wires) {
    if (wire.get() == used) break;
    if (wire->satisfies() == required && wire->may_join(a, b)) return wire->obstacle(a, b);
  }
  if (required == Requirement::shm && !hosts.are_together(a, b)) {
    return "only ranks with the same boot id, namespaces and user share memory";
  }
  if (required != Requirement::rdma) return {};
  for (const std::uint32_t rank : {a, b}) {
    const std::string& why = hosts.peers()[rank].why_no_rdma;
    if (!why.empty()) return fmt::format("rank {} cannot use RDMA: {}", rank, why);
  }
  return {};
}

}  // namespace

bool satisfies(
    Requirement required, const Hosts& hosts, std::uint32_t a, std::uint32_t b, const Wire* used) {
  if (required == Requirement::none) return true;
  if (required != Requirement::shm && hosts.are_together(a, b)) return true;
  return used != nullptr && used->satisfies() == required;
}

Status unsatisfied(Requirement required,
                   const Hosts& hosts,
                   std::span<const std::unique_ptr<Wire>> wires,
                   std::uint32_t a,
                   std::uint32_t b,
                   const Wire* used) {
  const Words words = words_of(required);
  const std::string why = reason(required, hosts, wires, a, b, used);
  return failure(
      Code::unsupported,
      fmt::format("XYLEM_REQUIRE={} demands {}, but rank {} on {} and rank {} on {} use {}{}: {}, "
                  "or unset XYLEM_REQUIRE to fall back",
                  words.value, words.demand, a, hosts.peers()[a].host, b, hosts.peers()[b].host,
                  used == nullptr ? "no transport" : used->name(),
                  why.empty() ? "" : fmt::format(" ({})", why), words.remedy));
}

}  // namespace xylem::runtime
