// SPDX-License-Identifier: Apache-2.0
#include "shm/memory_left.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace xylem::transport::shm {
namespace {

constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> number_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// The number in the file's first line; nullopt if the line is not a number, such as "max".
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  return std::getline(file, line) ? number_of(line) : std::nullopt;
}

/// The number after `key` in the line that begins with `key`; 0 if there is no such line.
std::uint64_t read_line(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key))
      return number_of(std::string_view(line).substr(key.size())).value_or(0);
  }
  return 0;
}

/// File names and keys in one version of control groups.
struct Names {
  const char* limit;
  const char* usage;
  const char* active;  ///< Active file pages, which the kernel reclaims before it kills a process.
  const char* inactive;
};
constexpr Names kSecond{"/memory.max", "/memory.current", "active_file ", "inactive_file "};
constexpr Names kFirst{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_active_file ",
                       "total_inactive_file "};

void bound(MemoryLeft& left, std::uint64_t bytes, const std::string& limit) {
  if (bytes >= left.bytes) return;
  left = {bytes, limit};
}

/// Applies the limits of the group `path` below `root` and of all groups above it.
void bound_by_groups(MemoryLeft& left,
                     const std::string& root,
                     std::string path,
                     const Names& names) {
  for (;;) {
    const std::string folder = root + path;
    const auto limit = read_number(folder + names.limit);
    const auto usage = read_number(folder + names.usage);
    if (limit && usage) {
      const std::string statistics = folder + "/memory.stat";
      const std::uint64_t pages =
          read_line(statistics, names.active) + read_line(statistics, names.inactive);
      const std::uint64_t taken = *usage - std::min(*usage, pages);
      bound(left, *limit - std::min(*limit, taken), folder + names.limit);
    }
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

MemoryLeft memory_left(const MemoryFiles& files) {
  MemoryLeft left{kUnbounded, {}};
  if (const std::uint64_t kilobytes = read_line(files.meminfo, "MemAvailable:"); kilobytes > 0) {
    bound(left, kilobytes * 1024, "this machine");
  }
  // A line is "0::/path", or "9:memory:/path" in version 1 of control groups.
  std::ifstream groups(files.groups);
  for (std::string line; std::getline(groups, line);) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const std::string_view before = std::string_view(line).substr(0, second);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (before == "0:") bound_by_groups(left, files.root, path, kSecond);
    if (before.ends_with(":memory")) bound_by_groups(left, files.root + "/memory", path, kFirst);
  }
  return left;
}

}  // namespace xylem::transport::shm
