// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as JSON of a topology. A topology that was read must not change when it is written
// as hwloc's XML and read again.
#include "topology_property.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = xylem::topology::read_json(text, "input");
  if (!xylem::topology::test::check_reading(read)) return 0;
  const std::string written = xylem::topology::to_hwloc_xml(*read);
  const auto back = xylem::topology::read_hwloc_xml(written, "written");
  XYLEM_CHECK(back.is_ok(), back.status().message(), written);
  XYLEM_CHECK(*back == *read, written);
  return 0;
}
