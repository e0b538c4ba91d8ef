// SPDX-License-Identifier: Apache-2.0
//
// Reads hwloc's XML into a topology.
#include "hwloc_xml/build.h"
#include "json_parts.h"
#include "source.h"
#include "xylem/topology/readers.h"

namespace xylem::topology {
namespace hwloc_xml {
namespace {

/// Schema 3 puts facts about the machine beside the machine object instead of inside it.
std::string machine_info(const Document& document, std::string_view name) {
  std::string value = Document::info(document.objects().front().node, name);
  return value.empty() ? Document::info(document.topology(), name) : value;
}

std::string product(const Document& document) {
  std::string name = machine_info(document, "DMIProductName");
  // Text that boards contain if their maker did not fill in the field.
  if (name.starts_with("To be filled") || name.starts_with("To Be Filled")) name.clear();
  return name.empty() ? machine_info(document, "PlatformModel") : name;
}

/// Reads the facts that to_hwloc_xml() wrote in addition to hwloc's own objects.
Status read_own_parts(Build& build) {
  const pugi::xml_node machine = build.document.objects().front().node;
  for (const pugi::xml_node info : machine.children("info")) {
    std::string_view name = info.attribute("name").value();
    if (!name.starts_with(kOwnPrefix)) continue;
    name.remove_prefix(kOwnPrefix.size());
    const Status status = replace_part(build.machine, name, info.attribute("value").value());
    if (!status) return build.document.error(info, std::string(status.message()));
  }
  return Status::ok();
}

}  // namespace

Result<Machine> read_machine(std::string_view text, std::string_view source) {
  XYLEM_TRY(const auto document, Document::parse(text, source));
  Build build(*document);
  build.machine.host = machine_info(*document, "HostName");
  build.machine.product = product(*document);
  build.machine.architecture = machine_info(*document, "Architecture");
  XYLEM_TRY(build_processors(build));
  XYLEM_TRY(build_devices(build));
  XYLEM_TRY(build_links(build));
  XYLEM_TRY(read_own_parts(build));
  return std::move(build.machine);
}

}  // namespace hwloc_xml

Result<Topology> read_hwloc_xml(std::string_view text, std::string_view source) {
  XYLEM_TRY(auto machine, hwloc_xml::read_machine(text, source));
  return create_from(source, std::move(machine));
}

}  // namespace xylem::topology
