// SPDX-License-Identifier: Apache-2.0
//
// Reads NVLink and XGMI from the elements of each <gpu>.
#include "nccl_xml/build.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace xylem::topology::nccl_xml {
namespace {

/// The largest number of parallel links in one element; no GPU has as many.
constexpr std::uint32_t kMostLinks = 1024;

/// Some files name the GPU itself in place of the NVSwitch to which it is linked.
bool is_own_address(const Build& build, const LinkEnd& end) {
  return build.machine.gpus[end.gpu].pci.address == end.target;
}

Result<PciAddress> read_target(const XmlText& xml, pugi::xml_node link) {
  const std::string_view text = link.attribute("target").value();
  if (text.starts_with("fffffff:")) return kHiddenSwitch;
  const auto address = PciAddress::parse(text);
  if (address) return *address;
  return xml.error(link, fmt::format("target {}", address.status().message()));
}

Result<LinkEnd> read_end(const XmlText& xml, pugi::xml_node link, std::uint32_t gpu) {
  LinkEnd end;
  end.gpu = gpu;
  const bool is_nvlink = std::string_view(link.name()) == "nvlink";
  end.kind = is_nvlink ? LinkKind::nvlink : LinkKind::xgmi;
  XYLEM_TRY(end.target, read_target(xml, link));
  const char* count = link.attribute("count").value();
  const auto number = parse_number<std::uint32_t>(count);
  if (!number || *number > kMostLinks) {
    return xml.error(link,
                     fmt::format("count \"{}\" is no number up to {}", excerpt(count), kMostLinks));
  }
  end.count = *number;
  std::string_view target_class = link.attribute("tclass").value();
  if (target_class.starts_with("0x")) target_class.remove_prefix(2);
  end.is_switch = is_nvlink && (end.target == kHiddenSwitch ||
                                parse_number<std::uint32_t>(target_class, 16) == kNvSwitchClass);
  return end;
}

Result<std::vector<LinkEnd>> read_ends(const Build& build) {
  std::vector<LinkEnd> ends;
  for (std::uint32_t gpu = 0; gpu < build.gpus.size(); ++gpu) {
    for (const pugi::xml_node link : build.gpus[gpu].node.child("gpu").children()) {
      const std::string_view tag = link.name();
      if (tag != "nvlink" && tag != "xgmi") continue;
      XYLEM_TRY(LinkEnd end, read_end(build.xml, link, gpu));
      if (end.is_switch && is_own_address(build, end)) end.target = kHiddenSwitch;
      if (ends.size() == kMaxLinks) {
        return build.xml.error(link, fmt::format("more than {} links", kMaxLinks));
      }
      if (end.count > 0) ends.push_back(end);
    }
  }
  return ends;
}

/// The rate of NVLink-C2C, which joins a GPU to its CPU (Grace): `bw` in MB/s for each of `count`
/// links.
Result<Rate> read_c2c(const XmlText& xml, pugi::xml_node link) {
  const auto bandwidth = parse_number<std::uint32_t>(link.attribute("bw").value());
  const auto count = parse_number<std::uint32_t>(link.attribute("count").value());
  if (!bandwidth || !count || *count == 0 || *count > kMostLinks) {
    return xml.error(link,
                     fmt::format("bw and count of <c2c> are no numbers, or count is not from 1 "
                                 "to {}",
                                 kMostLinks));
  }
  Rate rate;
  rate.width = count;
  if (*bandwidth == 0) return rate;
  rate.bandwidth = GBps{*bandwidth * kMegabyte * *count};
  rate.origin = Origin::read;
  return rate;
}

/// Adds the links from GPUs to CPUs. The file has no packages, so each NUMA node gets one.
Status add_cpu_links(Build& build) {
  Machine& machine = build.machine;
  for (std::uint32_t gpu = 0; gpu < build.gpus.size(); ++gpu) {
    const pugi::xml_node link = build.gpus[gpu].node.child("gpu").child("c2c");
    const Locality& numa = machine.gpus[gpu].pci.numa;
    if (!link || numa.size() != 1) continue;
    XYLEM_TRY(const Rate rate, read_c2c(build.xml, link));
    const NodeRef package{NodeKind::package, numa.front()};
    machine.links.push_back({{NodeKind::gpu, gpu}, package, LinkKind::nvlink, rate});
  }
  const auto is_of_cpu = [](const Link& link) { return link.b.kind == NodeKind::package; };
  if (std::ranges::none_of(machine.links, is_of_cpu)) return Status::ok();
  for (std::uint32_t i = 0; i < machine.numa_nodes.size(); ++i) {
    NumaNode& node = machine.numa_nodes[i];
    node.package = i;
    Package& package = machine.packages.emplace_back();
    package.os_index = node.os_index;
    package.cpus = node.cpus;
  }
  std::ranges::sort(machine.links, {},
                    [](const Link& link) { return std::tuple(link.a, link.b, link.kind); });
  return Status::ok();
}

}  // namespace

Status build_links(Build& build) {
  XYLEM_TRY(const auto ends, read_ends(build));
  add_links(build.machine, ends);
  return add_cpu_links(build);
}

}  // namespace xylem::topology::nccl_xml
