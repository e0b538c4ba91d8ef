// SPDX-License-Identifier: Apache-2.0
//
// An hwloc XML file as a flat list of objects, with parents before children. The nesting depth and
// the number of objects are limited here, so code that uses the list needs no further limits.
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

/// The object types of hwloc that matter here.
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
  std::uint32_t parent = 0;  ///< Index of the parent; the root is its own parent.
};

/// Real machines have fewer than 60 levels and 30 thousand objects.
inline constexpr std::size_t kMaxObjectDepth = 512;
inline constexpr std::size_t kMaxObjects = 500'000;

class Document {
 public:
  static Result<std::unique_ptr<Document>> parse(std::string_view text, std::string_view source);

  /// The version of the schema: 1, 2 or 3.
  int schema() const noexcept { return schema_; }
  /// The <topology> element, which contains distances in addition to the objects.
  pugi::xml_node topology() const noexcept { return topology_; }
  /// The objects in document order; the first object is the machine.
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
