// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as the description of a machine.
#include "topology_property.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(
      xylem::topology::test::check_reading(xylem::topology::read_synthetic(text, "input")));
  return 0;
}
