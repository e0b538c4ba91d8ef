// SPDX-License-Identifier: Apache-2.0
#include "hwloc_xml/document.h"

#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace xylem::topology::hwloc_xml {
namespace {

ObjectType object_type(std::string_view name) {
  // hwloc before 1.11 wrote Node and Socket.
  constexpr std::array<std::pair<std::string_view, ObjectType>, 10> kTypes{{
      {"Machine", ObjectType::machine},
      {"Package", ObjectType::package},
      {"Socket", ObjectType::package},
      {"NUMANode", ObjectType::numa_node},
      {"Node", ObjectType::numa_node},
      {"Core", ObjectType::core},
      {"PU", ObjectType::pu},
      {"Bridge", ObjectType::bridge},
      {"PCIDev", ObjectType::pci_device},
      {"OSDev", ObjectType::os_device},
  }};
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return ObjectType::other;
}

bool is_object(pugi::xml_node node) { return std::string_view(node.name()) == "object"; }

pugi::xml_node next_object(pugi::xml_node node) {
  while (node && !is_object(node)) node = node.next_sibling();
  return node;
}

}  // namespace

Result<std::unique_ptr<Document>> Document::parse(std::string_view text, std::string_view source) {
  auto document = std::unique_ptr<Document>(new Document());
  XYLEM_TRY(document->load(text, source));
  return document;
}

Status Document::load(std::string_view text, std::string_view source) {
  XYLEM_TRY(xml_, XmlText::parse(text, source, "export the machine again with lstopo FILE.xml"));
  topology_ = xml_->root();
  if (std::string_view(topology_.name()) != "topology") {
    return error(
        topology_,
        fmt::format("root element <{}> is not hwloc's <topology>; export with lstopo FILE.xml",
                    excerpt(topology_.name())));
  }
  XYLEM_TRY(find_schema());
  const pugi::xml_node root = next_object(topology_.first_child());
  if (!root || object_type(root.attribute("type").value()) != ObjectType::machine) {
    return error(topology_, "the first <object> is not of type Machine");
  }
  return flatten(root);
}

Status Document::find_schema() {
  const std::string_view version = topology_.attribute("version").value();
  if (version.empty()) {  // Schema 1 has no version attribute.
    schema_ = 1;
    return Status::ok();
  }
  const auto major = parse_number<unsigned>(version.substr(0, version.find('.')));
  if (!major || *major < 1 || *major > 3) {
    return error(topology_,
                 fmt::format("schema version \"{}\" is none of 1, 2 and 3", excerpt(version)));
  }
  schema_ = static_cast<int>(*major);
  return Status::ok();
}

Status Document::flatten(pugi::xml_node root) {
  std::vector<std::uint32_t> ancestors;
  for (pugi::xml_node node = root; node;) {
    if (objects_.size() == kMaxObjects) {
      return error(node, fmt::format("more than {} objects: not a machine", kMaxObjects));
    }
    const auto index = static_cast<std::uint32_t>(objects_.size());
    objects_.push_back({node, object_type(node.attribute("type").value()),
                        ancestors.empty() ? index : ancestors.back()});
    if (const auto child = next_object(node.first_child())) {
      ancestors.push_back(index);
      if (ancestors.size() > kMaxObjectDepth) {
        return error(child, fmt::format("objects are nested deeper than {}", kMaxObjectDepth));
      }
      node = child;
      continue;
    }
    // Continue with the next sibling of the nearest ancestor that has one. Only the subtree of the
    // machine counts.
    pugi::xml_node next;
    while (!(next = node == root ? pugi::xml_node() : next_object(node.next_sibling()))) {
      if (ancestors.empty()) return Status::ok();
      node = objects_[ancestors.back()].node;
      ancestors.pop_back();
    }
    node = next;
  }
  return Status::ok();
}

std::string Document::info(pugi::xml_node element, std::string_view name) {
  for (const pugi::xml_node child : element.children("info")) {
    if (child.attribute("name").value() == name)
      return clean_text(child.attribute("value").value());
  }
  return {};
}

Status Document::error(pugi::xml_node node, const std::string& message) const {
  return xml_->error(node, message);
}

}  // namespace xylem::topology::hwloc_xml
