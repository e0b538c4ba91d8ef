// SPDX-License-Identifier: Apache-2.0
//
// Cores: on which cores the ranks of a host may run together. This decides whether a waiting rank
// may spin.
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

/// This process's affinity; all cores if the kernel does not report it.
CoreSet own_cores();

/// The set as a text for other ranks: words in hexadecimal, separated by commas.
std::string to_text(const CoreSet& cores);
std::optional<CoreSet> parse_cores(std::string_view text);

/// CPU time that the cgroups of this process grant it, in cores: the least of its own cgroup and
/// all ancestors (cgroup v2: cpu.max; v1: cpu.cfs_quota_us), rounded down and at least 1; nothing
/// if they set no limit. `membership` is the content of /proc/self/cgroup, `mount` the directory
/// where cgroups are mounted.
std::optional<std::uint32_t> core_quota(std::string_view membership,
                                        const std::filesystem::path& mount);
std::optional<std::uint32_t> core_quota();

/// How many cores ranks with these `sets` have together, limited by `quota`. At least 1.
std::uint32_t cores_together(std::span<const CoreSet> sets, std::optional<std::uint32_t> quota);

/// Whether ranks with these `sets` may all run on the same cores, of which there are as many as
/// ranks.
bool has_core_for_each(std::span<const CoreSet> sets);

}  // namespace xylem::runtime
