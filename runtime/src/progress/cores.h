// SPDX-License-Identifier: Apache-2.0
//
// Cores: the cores on which the ranks of a host may run. Their number decides whether a waiting
// rank may spin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// One bit for each core, in the kernel's numbering, 64 to a word.
using CoreSet = std::vector<std::uint64_t>;

/// The cores on which this process may run (its affinity); all cores if the kernel does not report
/// the affinity.
CoreSet own_cores();

/// The set as text, to be sent to other ranks: words in hexadecimal, separated by commas.
std::string to_text(const CoreSet& cores);
std::optional<CoreSet> parse_cores(std::string_view text);

/// The CPU quota of this process, in cores: the smallest quota of its cgroup and all ancestors
/// (cgroup v2: cpu.max; v1: cpu.cfs_quota_us), rounded down, and at least 1. Empty if no cgroup
/// sets a quota. `membership` is the content of /proc/self/cgroup, `mount` the directory where
/// cgroups are mounted.
std::optional<std::uint32_t> core_quota(std::string_view membership,
                                        const std::filesystem::path& mount);
std::optional<std::uint32_t> core_quota();

/// The number of cores that are in any of the `sets`, at most `quota`, and at least 1. `sets` has
/// one set for each rank.
std::uint32_t cores_together(std::span<const CoreSet> sets, std::optional<std::uint32_t> quota);

/// Whether all ranks may run on the same cores, and there are as many of these cores as ranks.
/// `sets` has one set for each rank.
bool has_core_for_each(std::span<const CoreSet> sets);

}  // namespace xylem::runtime
