// SPDX-License-Identifier: Apache-2.0
//
// Parses the text of ucp_ep_print_info().
#include "ucx/lanes.h"

#include <optional>
#include <string>

namespace xylem::transport::ucx {
namespace {

// Removes everything up to and including the first `mark` from `text`, and returns the part before
// the mark; nullopt if there is no mark.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const auto before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

std::optional<PhysicalPath> parse_lane(std::string_view line) {
  if (!take_until(line, "lane[") || !take_until(line, "]:")) return std::nullopt;
  if (!take_until(line, ":")) return std::nullopt;  // skips the index of the resource
  const auto transport = take_until(line, "/");
  // A device name may contain dots (eth0.100); the last dot precedes the index of the path.
  const auto device = take_until(line, " ");
  if (!transport || !device) return std::nullopt;
  const auto dot = device->rfind('.');
  if (transport->empty() || dot == std::string_view::npos || dot == 0) return std::nullopt;
  return PhysicalPath{std::string(*transport), std::string(device->substr(0, dot))};
}

}  // namespace

std::vector<PhysicalPath> parse_lanes(std::string_view endpoint_info) {
  std::vector<PhysicalPath> lanes;
  while (!endpoint_info.empty()) {
    const auto line = endpoint_info.substr(0, endpoint_info.find('\n'));
    if (auto lane = parse_lane(line)) lanes.push_back(std::move(*lane));
    endpoint_info.remove_prefix(std::min(line.size() + 1, endpoint_info.size()));
  }
  return lanes;
}

}  // namespace xylem::transport::ucx
