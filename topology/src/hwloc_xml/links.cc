// SPDX-License-Identifier: Apache-2.0
//
// Reads NVLink and XGMI from hwloc's distance matrices. A matrix holds bandwidths in MB/s between
// OS devices (a driver's names for GPUs), NVSwitches and packages:
//
//   <distances2 type="OSDev" nbobjs="2" name="NVLinkBandwidth" indexing="gp">
//     <indexes length="4">7 9 </indexes>
//     <u64values length="30">1000000 50000 50000 1000000 </u64values>
//   </distances2>
//
// or, between objects of several types, <distances2hetero> with indexes "OSDev:7 PCIDev:4".
#include "hwloc_xml/build.h"
#include "text.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace xylem::topology::hwloc_xml {
namespace {

/// Limits the size of a matrix. An NVSwitch system has fewer than 40 ends, a node of partitioned
/// GPUs fewer than 100.
constexpr std::uint32_t kMaxMatrixObjects = 1024;

using NodeByGlobalIndex = std::unordered_map<std::uint64_t, NodeRef>;

/// The GPU, NVSwitch or package of an object. An OS device represents the GPU that it names.
std::optional<NodeRef> end_of_link(const Build& build, std::uint32_t object) {
  const auto pci = build.object(object).type == ObjectType::os_device ? pci_ancestor(build, object)
                                                                      : std::optional(object);
  const auto node = pci ? build.nodes[*pci] : std::nullopt;
  if (!node) return std::nullopt;
  const bool can_link = node->kind == NodeKind::gpu || node->kind == NodeKind::nvswitch ||
                        node->kind == NodeKind::package;
  return can_link ? node : std::nullopt;
}

NodeByGlobalIndex nodes_by_global_index(const Build& build) {
  NodeByGlobalIndex nodes;
  for (std::uint32_t i = 0; i < build.nodes.size(); ++i) {
    const auto global =
        parse_number<std::uint64_t>(build.object(i).node.attribute("gp_index").value());
    const auto end = global ? end_of_link(build, i) : std::nullopt;
    if (end) nodes.emplace(*global, *end);
  }
  return nodes;
}

/// The words, separated by blanks, of all children named `element`.
std::vector<std::string_view> words_in(pugi::xml_node matrix, const char* element) {
  std::vector<std::string_view> words;
  for (const pugi::xml_node child : matrix.children(element)) {
    std::string_view text = child.child_value();
    constexpr std::string_view kBlanks = " \t\r\n";
    for (auto start = text.find_first_not_of(kBlanks); start != std::string_view::npos;
         start = text.find_first_not_of(kBlanks)) {
      text.remove_prefix(start);
      words.push_back(text.substr(0, text.find_first_of(kBlanks)));
      text.remove_prefix(words.back().size());
    }
  }
  return words;
}

/// The node of each row; nothing for objects that are not ends of links.
Result<std::vector<std::optional<NodeRef>>> matrix_rows(const Build& build,
                                                        const NodeByGlobalIndex& nodes,
                                                        pugi::xml_node matrix) {
  std::vector<std::optional<NodeRef>> rows;
  for (const std::string_view word : words_in(matrix, "indexes")) {
    // In "OSDev:802" the type precedes the index.
    const auto index = parse_number<std::uint64_t>(word.substr(word.find(':') + 1));
    if (!index) {
      return build.document.error(matrix, fmt::format("index \"{}\" is no number", excerpt(word)));
    }
    const auto known = nodes.find(*index);
    rows.push_back(known == nodes.end() ? std::nullopt : std::optional(known->second));
  }
  return rows;
}

/// Recovers the number of NVLinks. hwloc's bandwidth is the number of links times the rate of one
/// link, which hwloc assumes to be 20 GB/s for the first generation (only the P100 has it) and 25
/// GB/s for all others.
std::optional<std::uint32_t> nvlinks_in(std::uint64_t megabytes,
                                        const Machine& machine,
                                        NodeRef gpu) {
  constexpr std::uint16_t kFirstP100 = 0x15f0;
  constexpr std::uint16_t kLastP100 = 0x15ff;
  const std::uint16_t device = machine.gpus[gpu.index].pci.id.device;
  const std::uint64_t one = device >= kFirstP100 && device <= kLastP100 ? 20'000 : 25'000;
  constexpr std::uint64_t kMost = 64;
  if (megabytes % one != 0 || megabytes / one > kMost) return std::nullopt;
  return static_cast<std::uint32_t>(megabytes / one);
}

/// Links by ends and kind. So the links of a GPU's partitions, and those of both triangles of a
/// matrix, are merged into one.
using LinkMap = std::map<std::tuple<NodeRef, NodeRef, LinkKind>, Rate>;

void add_link(LinkMap& links,
              const Machine& machine,
              LinkKind kind,
              NodeRef a,
              NodeRef b,
              std::uint64_t megabytes) {
  // Firmware reports unconnected links as links from a GPU to itself.
  if (a == b || megabytes == 0) return;
  if (b < a) std::swap(a, b);
  if (a.kind != NodeKind::gpu) return;
  const GBps bandwidth{static_cast<double>(megabytes) / 1000};
  Rate& rate = links[{a, b, kind}];
  if (rate.bandwidth && *rate.bandwidth >= bandwidth) return;
  rate.bandwidth = bandwidth;
  rate.origin = Origin::read;
  rate.width = kind == LinkKind::nvlink ? nvlinks_in(megabytes, machine, a) : std::nullopt;
}

Status read_matrix(const Build& build,
                   const NodeByGlobalIndex& nodes,
                   pugi::xml_node matrix,
                   LinkKind kind,
                   LinkMap& links) {
  const auto count = parse_number<std::uint32_t>(matrix.attribute("nbobjs").value());
  if (!count || *count > kMaxMatrixObjects) {
    return build.document.error(
        matrix, fmt::format("nbobjs \"{}\" is no number up to {}",
                            excerpt(matrix.attribute("nbobjs").value()), kMaxMatrixObjects));
  }
  XYLEM_TRY(const auto rows, matrix_rows(build, nodes, matrix));
  const auto values = words_in(matrix, "u64values");
  if (rows.size() != *count || values.size() != std::size_t{*count} * *count) {
    return build.document.error(
        matrix,
        fmt::format("{} objects need {} indexes and {} values, but here are {} and {}", *count,
                    *count, std::size_t{*count} * *count, rows.size(), values.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto megabytes = parse_number<std::uint64_t>(values[i]);
    if (!megabytes) {
      return build.document.error(matrix,
                                  fmt::format("value \"{}\" is no number", excerpt(values[i])));
    }
    const auto& a = rows[i / *count];
    const auto& b = rows[i % *count];
    if (a && b) add_link(links, build.machine, kind, *a, *b, *megabytes);
  }
  return Status::ok();
}

}  // namespace

Status build_links(Build& build) {
  const auto nodes = nodes_by_global_index(build);
  LinkMap links;
  for (const pugi::xml_node element : build.document.topology().children()) {
    const std::string_view tag = element.name();
    if (tag != "distances2" && tag != "distances2hetero") continue;
    const std::string_view name = element.attribute("name").value();
    if (name == "NVLinkBandwidth") {
      XYLEM_TRY(read_matrix(build, nodes, element, LinkKind::nvlink, links));
    } else if (name == "XGMIBandwidth") {
      XYLEM_TRY(read_matrix(build, nodes, element, LinkKind::xgmi, links));
    }
  }
  for (const auto& [key, rate] : links) {
    const auto& [a, b, kind] = key;
    build.machine.links.push_back({a, b, kind, rate});
  }
  return Status::ok();
}

}  // namespace xylem::topology::hwloc_xml
