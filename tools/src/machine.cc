// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "xylem/topology/discover.h"
#include "xylem/topology/path.h"
#include "xylem/topology/readers.h"

#include <fmt/format.h>

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

bool is_machine(const std::string& word) {
  std::error_code ignored;
  return is_description(word) || std::filesystem::is_regular_file(word, ignored);
}

Result<topology::Topology> machine_of(const std::string& source) {
  std::error_code ignored;
  const bool is_text = is_description(source) && !std::filesystem::exists(source, ignored);
  auto machine = source.empty() ? topology::discover()
                 : is_text      ? topology::read_synthetic(source, "description")
                                : topology::read_file(source);
  if (!machine) return machine;
  const auto warn = [](const std::string& text) {
    std::fprintf(stderr, "xylem: warning: %s\n", text.c_str());
  };
  for (const std::string& remark : machine->remarks()) warn(remark);
  if (const auto model = topology::gpus_without_their_links(*machine)) {
    warn(fmt::format(
        "GPUs such as \"{}\" have NVLinks, but {} shows none, so paths and plans assume "
        "PCIe; NCCL_TOPO_DUMP_FILE and lstopo with NVML write files that show them",
        *model, source.empty() ? "the driver" : source));
  }
  return machine;
}

}  // namespace xylem::tools
