// SPDX-License-Identifier: Apache-2.0
//
// Reads the <system> element and its <cpu> elements.
#include "nccl_xml/build.h"
#include "nic_name.h"
#include "source.h"
#include "text.h"
#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace xylem::topology {
namespace nccl_xml {
namespace {

constexpr std::array<std::string_view, 2> kVersions{"1", "2"};

/// A <cpu> element and its NUMA node.
struct Cpu {
  std::optional<std::uint32_t> numa;  ///< Absent if the kernel does not report NUMA nodes.
  pugi::xml_node node;
};

Status check_system(const XmlText& xml) {
  const pugi::xml_node system = xml.root();
  if (std::string_view(system.name()) != "system") {
    return xml.error(
        system, fmt::format("root element <{}> is not NCCL's <system>; let NCCL write one with "
                            "NCCL_TOPO_DUMP_FILE",
                            excerpt(system.name())));
  }
  const std::string_view version = system.attribute("version").value();
  if (std::ranges::find(kVersions, version) != kVersions.end()) return Status::ok();
  return xml.error(system, fmt::format("version \"{}\" of NCCL's topology is none of {}",
                                       excerpt(version), fmt::join(kVersions, ", ")));
}

Result<std::vector<Cpu>> read_cpus(const XmlText& xml) {
  std::vector<Cpu> cpus;
  std::string_view host;
  for (const pugi::xml_node node : xml.root().children("cpu")) {
    const std::string_view number = node.attribute("numaid").value();
    const auto numa = parse_number<std::uint32_t>(number);
    if (number.empty()) {
      return xml.error(node,
                       "numaid is missing: the number of the NUMA node, or -1 if there is none");
    }
    if (!numa && number != "-1") {
      return xml.error(node, fmt::format("numaid \"{}\" is no number", excerpt(number)));
    }
    const std::string_view here = node.attribute("host_hash").value();
    if (!cpus.empty() && here != host) {
      return xml.error(node, fmt::format("host_hash {} after {}: several hosts in one file; give "
                                         "each a file of its own",
                                         excerpt(here), excerpt(host)));
    }
    host = here;
    cpus.push_back({numa, node});
  }
  if (cpus.empty()) return xml.error(xml.root(), "there is no <cpu>, so no machine");
  std::ranges::stable_sort(cpus, {}, &Cpu::numa);
  const auto repeated = std::ranges::adjacent_find(cpus, {}, &Cpu::numa);
  if (repeated != cpus.end()) {
    const auto& second = *std::next(repeated);
    return xml.error(second.node, fmt::format("numaid {} is here twice",
                                              second.node.attribute("numaid").value()));
  }
  return cpus;
}

Status add_numa_node(Build& build, const Cpu& cpu) {
  NumaNode numa;
  numa.implied = !cpu.numa;
  numa.os_index = cpu.numa.value_or(0);
  if (const pugi::xml_attribute affinity = cpu.node.attribute("affinity")) {
    auto cpus = CpuSet::parse_bitmap(affinity.value());
    if (!cpus) {
      return build.xml.error(cpu.node,
                             fmt::format("affinity \"{}\" is no bitmap of at most {} bits (such as "
                                         "0000ffff,ffffffff)",
                                         excerpt(affinity.value()), kMaxCpu + 1));
    }
    numa.cpus = *std::move(cpus);
  }
  build.machine.numa_nodes.push_back(std::move(numa));
  return Status::ok();
}

Result<Topology> read(std::string_view text, std::string_view source) {
  XYLEM_TRY(const auto xml,
            XmlText::parse(text, source, "let NCCL write it again with NCCL_TOPO_DUMP_FILE"));
  XYLEM_TRY(check_system(*xml));
  XYLEM_TRY(const auto cpus, read_cpus(*xml));
  Build build(*xml);
  build.machine.architecture = clean_text(cpus.front().node.attribute("arch").value());
  for (const Cpu& cpu : cpus) XYLEM_TRY(add_numa_node(build, cpu));
  for (std::uint32_t i = 0; i < cpus.size(); ++i) XYLEM_TRY(find_devices(build, cpus[i].node, i));
  XYLEM_TRY(list_devices(build));
  XYLEM_TRY(build_links(build));
  name_nics(build.machine);
  XYLEM_TRY(Topology topology, create_from(source, std::move(build.machine)));
  topology.set_remarks(std::move(build.remarks));
  return topology;
}

}  // namespace
}  // namespace nccl_xml

Result<Topology> read_nccl_xml(std::string_view text, std::string_view source) {
  return nccl_xml::read(text, source);
}

}  // namespace xylem::topology
