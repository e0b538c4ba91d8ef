// SPDX-License-Identifier: Apache-2.0
//
// An hwloc XML file as a flat list of objects, parents before children. What a hostile file could
// do by depth and number of objects is bounded here, so that those who read the list need no guard.
#pragma once

#include "xml_text.h"
#include "xylem/base/status.h"

#include <pugixml.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology::hwloc_xml {

/// hwloc's object types, as far as they matter here.
enum class ObjectType : std::uint8_t {
  machine,
  package,
  numa_node,
  core,
  pu,
  bridge,
  pci_device,
  os_device,
  other,  ///< Caches, groups, dies, memory modules.
};

struct Object {
  pugi::xml_node node;
  ObjectType type = ObjectType::other;
  std::uint32_t parent = 0;  ///< Index; the root is its own parent.
};

/// Real machines stay below 60 levels and 30 thousand objects.
inline constexpr std::size_t kMaxObjectDepth = 512;
inline constexpr std::size_t kMaxObjects = 500'000;

class Document {
 public:
  static Result<std::unique_ptr<Document>> parse(std::string_view text, std::string_view source);

  /// 1, 2 or 3.
  int schema() const noexcept { return schema_; }
  /// The <topology> element, which holds distances beside the objects.
  pugi::xml_node topology() const noexcept { return topology_; }
  /// In document order; the first is the machine.
  const std::vector<Object>& objects() const noexcept { return objects_; }

  /// The value of `<info name="NAME" value="…"/>` in `element`, cleaned; empty if there is none.
  static std::string info(pugi::xml_node element, std::string_view name);

  /// An error at `node`: "machine.xml:12: MESSAGE".
  Status error(pugi::xml_node node, const std::string& message) const;

 private:
  Document() = default;

  Status load(std::string_view text, std::string_view source);
  Status find_schema();
  Status flatten(pugi::xml_node root);

  std::unique_ptr<XmlText> xml_;
  pugi::xml_node topology_;
  int schema_ = 0;
  std::vector<Object> objects_;
};

}  // namespace xylem::topology::hwloc_xml
