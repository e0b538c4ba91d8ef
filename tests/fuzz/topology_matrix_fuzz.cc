// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as a matrix of nvidia-smi. It is compared with a small machine.
#include "xylem/base/check.h"
#include "xylem/topology/compare.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

xylem::topology::Topology small_machine() {
  xylem::topology::Machine machine;
  machine.numa_nodes.emplace_back();
  xylem::topology::Gpu gpu;
  gpu.pci.numa = {0};
  machine.gpus.push_back(gpu);
  return *xylem::topology::Topology::create(machine);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto kMachine = small_machine();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto found = xylem::topology::compare_matrix(kMachine, text, "input");
  if (!found) {
    const auto message = found.status().message();
    XYLEM_CHECK(message.starts_with("input:"), message);
    XYLEM_CHECK(message.find('\n') == std::string_view::npos, message);
  }
  return 0;
}
