// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "xylem/topology/discover.h"
#include "xylem/topology/readers.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

namespace xylem::tools {
namespace {

/// Whether the text begins with a number and a blank, as "8 gpus, nvswitch" does. A text without
/// this blank, such as "8gpus.xml", is taken for a file name, even if there is no such file.
bool is_description(const std::string& text) {
  const auto after = text.find_first_not_of("0123456789");
  return after != 0 && after != std::string::npos && text[after] == ' ';
}

}  // namespace

Result<topology::Topology> machine_of(const std::string& source) {
  if (source.empty()) return topology::discover();
  std::error_code ignored;
  if (is_description(source) && !std::filesystem::exists(source, ignored)) {
    return topology::read_synthetic(source, "description");
  }
  auto machine = topology::read_file(source);
  if (machine) {
    for (const std::string& remark : machine->remarks()) {
      std::fprintf(stderr, "xylem: warning: %s\n", remark.c_str());
    }
  }
  return machine;
}

}  // namespace xylem::tools
