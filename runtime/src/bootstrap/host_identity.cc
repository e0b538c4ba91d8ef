// SPDX-License-Identifier: Apache-2.0
//
// Reads facts about this host and process from /proc.
#include "bootstrap/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace xylem::runtime {
namespace {

std::uint64_t inode_of(const char* path) {
  struct stat facts {};
  return ::stat(path, &facts) == 0 ? facts.st_ino : 0;
}

/// Reads "0f3a2b1c-…" without its dashes, as two words.
void read_boot_id(HostIdentity& identity) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string digits;
  for (char c = 0; file.get(c);) {
    if (c != '-' && c != '\n') digits += c;
  }
  constexpr std::size_t kDigits = 32;
  if (digits.size() != kDigits) return;
  const char* const text = digits.data();
  std::from_chars(text, text + kDigits / 2, identity.boot_high, 16);
  std::from_chars(text + kDigits / 2, text + kDigits, identity.boot_low, 16);
}

}  // namespace

std::uint64_t start_ticks(std::uint32_t pid) {
  // The start time is field 22. The search begins at the last ')', since field 2, the program's
  // name in parentheses, may itself contain blanks and parentheses.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::size_t at = name_end;
  constexpr int kBlanksBetween = 20;
  for (int i = 0; i < kBlanksBetween && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  std::uint64_t ticks = 0;
  std::from_chars(text.data() + at + 1, text.data() + text.size(), ticks);
  return ticks;
}

HostIdentity HostIdentity::of_this_process() {
  HostIdentity identity;
  read_boot_id(identity);
  identity.pid_space = inode_of("/proc/self/ns/pid");
  identity.net_space = inode_of("/proc/self/ns/net");
  identity.pid = static_cast<std::uint32_t>(::getpid());
  identity.started = start_ticks(identity.pid);
  return identity;
}

void HostIdentity::write(WireWriter& writer) const {
  writer.number(boot_high).number(boot_low).number(pid_space).number(net_space).number(started);
  writer.number(pid);
}

HostIdentity HostIdentity::read(WireReader& reader) noexcept {
  HostIdentity identity;
  identity.boot_high = reader.number<std::uint64_t>();
  identity.boot_low = reader.number<std::uint64_t>();
  identity.pid_space = reader.number<std::uint64_t>();
  identity.net_space = reader.number<std::uint64_t>();
  identity.started = reader.number<std::uint64_t>();
  identity.pid = reader.number<std::uint32_t>();
  return identity;
}

bool HostIdentity::same_host(const HostIdentity& other) const noexcept {
  return (boot_high | boot_low) != 0 && boot_high == other.boot_high && boot_low == other.boot_low;
}

bool HostIdentity::same_network(const HostIdentity& other) const noexcept {
  return same_host(other) && net_space != 0 && net_space == other.net_space;
}

bool HostIdentity::is_elsewhere(const HostIdentity& other) const noexcept {
  const auto knows = [](const HostIdentity& each) {
    return (each.boot_high | each.boot_low) != 0 && each.net_space != 0;
  };
  return knows(*this) && knows(other) && !same_network(other);
}

bool HostIdentity::same_processes(const HostIdentity& other) const noexcept {
  return same_host(other) && pid_space != 0 && pid_space == other.pid_space;
}

}  // namespace xylem::runtime
