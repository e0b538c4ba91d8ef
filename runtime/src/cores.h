// SPDX-License-Identifier: Apache-2.0
//
// Cores: on which the ranks of a host may run, together. Whether a waiting rank may spin depends on
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// A bit for each core of the kernel's numbering, 64 to a word.
using CoreSet = std::vector<std::uint64_t>;

/// This process's affinity; all cores where the kernel does not tell it.
CoreSet own_cores();

/// For other ranks: words in hexadecimal, separated by commas.
std::string to_text(const CoreSet& cores);
std::optional<CoreSet> parse_cores(std::string_view text);

/// Cores' worth of time that the cgroups of this process grant it, the least of itself and its
/// ancestors (cgroup v2: cpu.max; v1: cpu.cfs_quota_us), rounded down and at least 1; nothing if
/// they set no bound. `membership`: what /proc/self/cgroup says; `mount`: where cgroups are
/// mounted.
std::optional<std::uint32_t> core_quota(std::string_view membership,
                                        const std::filesystem::path& mount);
std::optional<std::uint32_t> core_quota();

/// How many cores ranks have together that may run on `sets`, bounded by `quota`. At least 1.
std::uint32_t cores_together(std::span<const CoreSet> sets, std::optional<std::uint32_t> quota);

}  // namespace xylem::runtime
