// SPDX-License-Identifier: Apache-2.0
//
// A topology from a file of either form.
#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace xylem::topology {
namespace {

/// The file's text. One byte beyond the limit is read too, so that the parsers see that it is too
/// long; a device or pipe that never ends is cut there.
Result<std::string> contents(const std::string& path) {
  const auto cannot = [&](int error) {
    return failure(Code::invalid_argument,
                   fmt::format("{}: cannot read it ({})", path, std::strerror(error)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) return cannot(errno);
  std::string text;
  constexpr std::size_t kStep = std::size_t{256} << 10;
  while (text.size() <= kMaxSourceBytes) {
    const std::size_t had = text.size();
    text.resize(had + kStep);
    const std::size_t got = std::fread(text.data() + had, 1, kStep, file.get());
    text.resize(had + got);
    if (got < kStep) break;
  }
  if (std::ferror(file.get()) != 0) return cannot(errno);
  return text;
}

}  // namespace

Result<Topology> read_file(const std::string& path) {
  XYLEM_TRY(const std::string text, contents(path));
  std::size_t first = text.find_first_not_of(" \t\r\n");
  // Editors of another system put a byte order mark before it.
  if (text.starts_with("\xef\xbb\xbf")) first = 3;
  if (first == std::string::npos) {
    return failure(Code::invalid_argument, fmt::format("{}: the file is empty", path));
  }
  if (text[first] == '<') return read_hwloc_xml(text, path);
  if (text[first] == '{') return read_json(text, path);
  return failure(
      Code::invalid_argument,
      fmt::format("{}: neither hwloc XML (lstopo FILE.xml) nor JSON of `xylem topo --format json`",
                  path));
}

}  // namespace xylem::topology
