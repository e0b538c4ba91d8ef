// SPDX-License-Identifier: Apache-2.0
//
// Parses devices, and computes the sizes of a sweep.
#include "bench/options.h"

#include <fmt/format.h>

#include <charconv>

namespace xylem::tools {

Result<DeviceOption> parse_device(std::string_view text) {
  constexpr std::string_view kCuda = "cuda";
  constexpr std::uint32_t kMostDevices = 1024;
  if (text == "host") return DeviceOption{};
  if (text == kCuda) return DeviceOption{true, std::nullopt};
  if (text.starts_with(kCuda) && text.substr(kCuda.size()).starts_with(':')) {
    const char* const first = text.data() + kCuda.size() + 1;
    const char* const last = text.data() + text.size();
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(first, last, number);
    if (error == std::errc() && end == last && number < kMostDevices) {
      return DeviceOption{true, number};
    }
  }
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" is no device; write host, cuda, or cuda:K for device K of "
                             "each process",
                             text));
}

std::vector<Bytes> sweep(const BenchOptions& options) {
  std::vector<Bytes> sizes;
  for (std::uint64_t size = options.begin.value; size <= options.end.value;
       size *= options.factor) {
    sizes.push_back({size});
    if (size > options.end.value / options.factor)
      break;  // the next size would be too large, or overflow
  }
  return sizes;
}

}  // namespace xylem::tools
