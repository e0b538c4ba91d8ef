// SPDX-License-Identifier: Apache-2.0
//
// Reads a topology from a file in any form.
#include "xylem/base/file.h"

#include "xylem/topology/readers.h"

#include <fmt/format.h>

namespace xylem::topology {
namespace {

/// The first element determines the format; comments and declarations may precede it.
Result<Topology> read_xml(std::string_view text, const std::string& path) {
  std::size_t at = text.find('<');
  while (at != std::string_view::npos && at + 1 < text.size()) {
    const std::string_view rest = text.substr(at + 1);
    if (rest.starts_with("!--")) {
      at = text.find("-->", at);
    } else if (rest.front() != '!' && rest.front() != '?') {
      return rest.starts_with("system") ? read_nccl_xml(text, path) : read_hwloc_xml(text, path);
    }
    if (at != std::string_view::npos) at = text.find('<', at + 1);
  }
  return read_hwloc_xml(text, path);
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  auto text = xylem::read_any_file(path, {kMaxSourceBytes});
  if (text) return text;
  return failure(text.code(), fmt::format("{}: {}", path, text.status().message()));
}

Result<Topology> read_file(const std::string& path) {
  XYLEM_TRY(const std::string text, read_text(path));
  std::size_t first = text.find_first_not_of(" \t\r\n");
  // Editors on other systems may write a byte order mark first.
  if (text.starts_with("\xef\xbb\xbf")) first = 3;
  if (first == std::string::npos) {
    return failure(Code::invalid_argument, fmt::format("{}: the file is empty", path));
  }
  if (text[first] == '<') return read_xml(text, path);
  if (text[first] == '{') return read_json(text, path);
  if (text[first] >= '0' && text[first] <= '9') return read_synthetic(text, path);
  return failure(
      Code::invalid_argument,
      fmt::format(
          "{}: neither XML of hwloc (lstopo FILE.xml) or NCCL (NCCL_TOPO_DUMP_FILE) nor JSON "
          "of `xylem topo --format json` nor a description (\"2 packages, 8 gpus\")",
          path));
}

}  // namespace xylem::topology
