// SPDX-License-Identifier: Apache-2.0
//
// What each rank tells all others at start.
#pragma once

#include "config.h"
#include "cores.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace xylem::runtime {

struct PeerFacts {
  std::string host;          ///< Host name, for people.
  std::uint64_t kernel = 0;  ///< Hash of boot id, network and IPC namespace, and user: where it
                             ///< differs, shared memory cannot meet.
  CoreSet cores;             ///< On which it may run.
  std::uint32_t quota = 0;   ///< Cores' worth of time that its cgroups grant; 0: no bound.
  bool has_rdma = false;     ///< UCX finds RDMA devices that XYLEM_DEVICES allows.
  bool has_aes = false;      ///< Its processor seals with AES-256-GCM.
  std::string settings;      ///< agreed_settings().
};
PeerFacts own_facts(const LoadedConfig& loaded);

/// For the way from rank to rank.
std::vector<std::byte> encode(const PeerFacts& facts);
/// `mismatch` where the bytes of `rank` are not what encode() gives.
Result<PeerFacts> decode(std::uint32_t rank, std::span<const std::byte> blob);

/// OK, or a mismatch that names the first setting in which the two differ.
Status compare_settings(std::uint32_t rank_a,
                        const PeerFacts& a,
                        std::uint32_t rank_b,
                        const PeerFacts& b);

}  // namespace xylem::runtime
