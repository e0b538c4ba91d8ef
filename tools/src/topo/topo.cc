// SPDX-License-Identifier: Apache-2.0
//
// Turns a source of facts into output.
#include "topo/topo.h"

#include "exit_code.h"
#include "machine.h"
#include "xylem/topology/compare.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::tools {
namespace {

std::string text_of(const topology::Topology& machine, TopoOptions::Format format) {
  switch (format) {
    case TopoOptions::Format::tree: return topology::to_tree(machine);
    case TopoOptions::Format::matrix: return topology::to_matrix(machine);
    case TopoOptions::Format::json: return topology::to_json(machine);
    case TopoOptions::Format::svg: return topology::to_svg(machine);
    case TopoOptions::Format::html: return topology::to_html(machine);
    case TopoOptions::Format::xml: return topology::to_hwloc_xml(machine);
    case TopoOptions::Format::nccl: return topology::to_nccl_xml(machine);
  }
  return {};
}

int report(const Status& trouble) {
  fmt::print(stderr, "xylem topo: {}\n", trouble.message());
  return kExitUsage;
}

int compare(const topology::Topology& machine, const std::string& path) {
  const auto text = topology::read_text(path);
  if (!text) return report(text.status());
  const auto differences = topology::compare_matrix(machine, *text, path);
  if (!differences) return report(differences.status());
  for (const auto& [row, column, there, here] : *differences) {
    if (row == column) {
      fmt::print("{}: {}\n", row, there == "absent" ? "not in " + path : "only in " + path);
    } else {
      fmt::print("{} {}: {} in {}, {} here\n", row, column, there, path, here);
    }
  }
  if (!differences->empty()) return kExitWrongResult;
  fmt::print("all cells of {} agree\n", path);
  return kExitRight;
}

int diff(const topology::Topology& machine, const std::string& path) {
  const auto other = topology::read_file(path);
  if (!other) return report(other.status());
  const auto differences = topology::diff(machine, *other);
  for (const auto& [thing, fact, a, b] : differences) {
    if (fact.empty()) {
      fmt::print("{}: {}\n", thing, a == "absent" ? "only in " + path : "not in " + path);
    } else {
      fmt::print("{}: {} {} here, {} in {}\n", thing, fact, a, b, path);
    }
  }
  if (!differences.empty()) return kExitWrongResult;
  fmt::print("no difference\n");
  return kExitRight;
}

int explain(const topology::Topology& machine, const std::vector<std::string>& names) {
  std::vector<topology::NodeRef> devices;
  for (const std::string& name : names) {
    const auto device = topology::find_device(machine, name);
    if (!device) return report(device.status());
    devices.push_back(*device);
  }
  fmt::print("{}", devices.size() == 1 ? topology::explain(machine, devices[0])
                                       : topology::explain(machine, devices[0], devices[1]));
  return kExitRight;
}

}  // namespace

int topo(TopoOptions options) {
  // In `--explain gpu3 FILE`, the parser takes FILE for a second device.
  if (options.explain.size() == 2 && options.source.empty() && is_machine(options.explain[1])) {
    options.source = std::move(options.explain[1]);
    options.explain.pop_back();
  }
  const auto machine = machine_of(options.source);
  if (!machine) return report(machine.status());
  if (!options.compare.empty()) return compare(*machine, options.compare);
  if (!options.diff.empty()) return diff(*machine, options.diff);
  if (!options.explain.empty()) return explain(*machine, options.explain);
  fmt::print("{}", text_of(*machine, options.format));
  return kExitRight;
}

}  // namespace xylem::tools
