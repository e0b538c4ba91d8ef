// SPDX-License-Identifier: Apache-2.0
//
// What each rank tells all others at start.
#pragma once

#include "config.h"
#include "progress/cores.h"
#include "xylem/base/log.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace xylem::runtime {

struct PeerFacts {
  std::string host;          ///< Host name, for people.
  std::uint64_t kernel = 0;  ///< Hash of boot id, network and IPC namespaces, and user. Ranks that
                             ///< differ in it cannot share memory.
  CoreSet cores;             ///< Cores on which the rank may run.
  std::uint32_t quota = 0;   ///< CPU time that its cgroups grant, in cores; 0: no limit.
  bool has_rdma = false;     ///< UCX finds RDMA devices that XYLEM_DEVICES allows.
  bool has_aes = false;      ///< Its processor supports AES-256-GCM.
  std::string settings;      ///< agreed_settings().
};
/// The name of this host.
std::string host_name();
PeerFacts own_facts(const LoadedConfig& loaded, const Logger& logger);

/// The facts as bytes, to be sent to other ranks.
std::vector<std::byte> encode(const PeerFacts& facts);
/// Fails with `mismatch` if `blob`, which came from `rank`, is not a result of encode().
Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob);

/// OK, or a mismatch that names the first setting in which the two differ.
Status compare_settings(std::uint32_t rank_a,
                        const PeerFacts& a,
                        std::uint32_t rank_b,
                        const PeerFacts& b);

}  // namespace xylem::runtime
