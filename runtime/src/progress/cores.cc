// SPDX-License-Identifier: Apache-2.0
#include "progress/cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sched.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>

namespace xylem::runtime {
namespace {

constexpr std::uint32_t kWordBits = 64;
/// More cores than any kernel supports.
constexpr std::size_t kMostCores = std::size_t{1} << 16;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};

CoreSet first_cores(std::uint32_t count) {
  CoreSet cores(count / kWordBits + 1);
  for (std::uint32_t core = 0; core < count; ++core) {
    cores[core / kWordBits] |= std::uint64_t{1} << (core % kWordBits);
  }
  return cores;
}

/// The number of cores that `quota` per `period` (microseconds) grants; empty if there is no limit.
std::optional<std::uint32_t> cores_worth(double quota, double period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<std::uint32_t>(std::clamp(quota / period, 1.0, double{kMostCores}));
}

std::optional<std::uint32_t> read_v2(const std::filesystem::path& group) {
  double quota = 0, period = 0;  // The text "max 100000" leaves both 0.
  std::ifstream(group / "cpu.max") >> quota >> period;
  return cores_worth(quota, period);
}

std::optional<std::uint32_t> read_v1(const std::filesystem::path& group) {
  double quota = 0, period = 0;
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return cores_worth(quota, period);
}

std::optional<std::uint32_t> least(std::optional<std::uint32_t> a, std::optional<std::uint32_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// The smallest number that `read` returns for a group ("/a/b") and its ancestors up to the mount.
template <typename Read>
std::optional<std::uint32_t> least_upwards(const std::filesystem::path& mount,
                                           std::string_view group,
                                           Read read) {
  auto found = read(mount);
  std::filesystem::path place = mount;
  for (const auto& part : std::filesystem::path(group).relative_path()) {
    place /= part;
    found = least(found, read(place));
  }
  return found;
}

}  // namespace

CoreSet own_cores() {
  // The kernel refuses a set that is smaller than its own, so larger and larger sets are tried.
  for (std::size_t cores = 1024; cores <= kMostCores; cores *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(cores));
    const std::size_t bytes = CPU_ALLOC_SIZE(cores);
    if (set == nullptr) break;
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    CoreSet found(cores / kWordBits);
    for (std::size_t core = 0; core < cores; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) {
        found[core / kWordBits] |= std::uint64_t{1} << (core % kWordBits);
      }
    }
    while (found.size() > 1 && found.back() == 0) found.pop_back();
    return found;
  }
  return first_cores(std::max(1U, std::thread::hardware_concurrency()));
}

std::string to_text(const CoreSet& cores) { return fmt::format("{:x}", fmt::join(cores, ",")); }

std::optional<CoreSet> parse_cores(std::string_view text) {
  CoreSet cores;
  while (cores.size() < kMostCores / kWordBits) {
    const auto comma = std::min(text.find(','), text.size());
    std::uint64_t word = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + comma, word, 16);
    if (error != std::errc() || end != text.data() + comma) return std::nullopt;
    cores.push_back(word);
    if (comma == text.size()) return cores;
    text.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> core_quota(std::string_view membership,
                                        const std::filesystem::path& mount) {
  std::optional<std::uint32_t> found = least(read_v2(mount), read_v1(mount / "cpu"));
  while (!membership.empty()) {
    // A line is "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1).
    const auto end = std::min(membership.find('\n'), membership.size());
    const std::string_view line = membership.substr(0, end);
    membership.remove_prefix(std::min(end + 1, membership.size()));
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    if (controllers.empty()) {
      found = least(found, least_upwards(mount, group, read_v2));
    } else if (fmt::format(",{},", controllers).find(",cpu,") != std::string::npos) {
      found = least(found, least_upwards(mount / "cpu", group, read_v1));
    }
  }
  return found;
}

std::optional<std::uint32_t> core_quota() {
  std::ifstream file("/proc/self/cgroup");
  const std::string membership(std::istreambuf_iterator<char>(file), {});
  return core_quota(membership, "/sys/fs/cgroup");
}

std::uint32_t cores_together(std::span<const CoreSet> sets, std::optional<std::uint32_t> quota) {
  CoreSet all;
  for (const CoreSet& set : sets) {
    all.resize(std::max(all.size(), set.size()));
    for (std::size_t word = 0; word < set.size(); ++word) all[word] |= set[word];
  }
  const auto count = std::accumulate(all.begin(), all.end(), 0U, [](unsigned sum, auto word) {
    return sum + static_cast<unsigned>(std::popcount(word));
  });
  return std::max(1U, std::min(count, quota.value_or(count)));
}

bool has_core_for_each(std::span<const CoreSet> sets) {
  return cores_together(sets, std::nullopt) == sets.size() &&
         std::ranges::all_of(sets, [&](const CoreSet& set) { return set == sets.front(); });
}

}  // namespace xylem::runtime
