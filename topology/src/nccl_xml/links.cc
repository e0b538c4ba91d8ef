// SPDX-License-Identifier: Apache-2.0
//
// Reads NVLink and XGMI from the elements of each <gpu>.
#include "nccl_xml/build.h"
#include "text.h"

#include <fmt/format.h>

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

}  // namespace

Status build_links(Build& build) {
  XYLEM_TRY(const auto ends, read_ends(build));
  add_links(build.machine, ends);
  return Status::ok();
}

}  // namespace xylem::topology::nccl_xml
