// SPDX-License-Identifier: Apache-2.0
//
// Splits bytes into lines.
#include "run/line_writer.h"

#include <algorithm>

namespace xylem::tools {

void LineWriter::end_line(std::string& out) {
  out += prefix_;
  out += line_;
  out += '\n';
  line_.clear();
}

std::string LineWriter::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const auto room = bytes.substr(0, kLongestLine - line_.size());
    const auto end = room.find('\n');
    line_ += room.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? room.size() : end + 1);
    if (end != std::string_view::npos || line_.size() == kLongestLine) end_line(out);
  }
  return out;
}

std::string LineWriter::finish() {
  std::string out;
  if (!line_.empty()) end_line(out);
  return out;
}

}  // namespace xylem::tools
