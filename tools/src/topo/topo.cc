// SPDX-License-Identifier: Apache-2.0
//
// From a source of facts to a writer.
#include "topo/topo.h"

#include "exit_code.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

namespace xylem::tools {
namespace {

std::string text_of(const topology::Topology& machine, TopoOptions::Format format) {
  switch (format) {
    case TopoOptions::Format::tree: return topology::to_tree(machine);
    case TopoOptions::Format::matrix: return topology::to_matrix(machine);
    case TopoOptions::Format::json: return topology::to_json(machine);
  }
  return {};
}

}  // namespace

int topo(const TopoOptions& options) {
  const auto machine =
      options.file.empty() ? topology::discover() : topology::read_file(options.file);
  if (!machine) {
    fmt::print(stderr, "xylem topo: {}\n", machine.status().message());
    return kExitUsage;
  }
  fmt::print("{}", text_of(*machine, options.format));
  return kExitRight;
}

}  // namespace xylem::tools
