// SPDX-License-Identifier: Apache-2.0
#include "sysfs_files.h"

#include "text.h"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace xylem::topology::sysfs {
namespace {

namespace fs = std::filesystem;

/// Limits the number of entries that are read from a directory. Even a machine with thousands of
/// virtual interfaces has fewer.
constexpr std::size_t kMaxEntries = 16384;

}  // namespace

std::optional<std::string> value(const fs::path& file) {
  // A file of sysfs holds at most one page. So only the first page of a file is read.
  constexpr std::streamsize kPage = 4096;
  std::ifstream stream(file, std::ios::binary);
  std::string text(kPage, '\0');
  stream.read(text.data(), kPage);
  if (stream.bad() || stream.gcount() == 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return clean_text(std::string_view(text).substr(0, text.find('\n')));
}

std::vector<std::string> subdirectories(const Directory& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error);
       !error && at != fs::directory_iterator() && names.size() < kMaxEntries;
       at.increment(error)) {
    if (has_directory(at->path())) names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool has_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::optional<std::string> link_target(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return std::nullopt;
  return target.filename().string();
}

std::optional<PciAddress> pci_function(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return std::nullopt;
  std::optional<PciAddress> innermost;
  for (const fs::path& component : real) {
    if (auto address = PciAddress::parse(component.string())) innermost = *address;
  }
  return innermost;
}

}  // namespace xylem::topology::sysfs
