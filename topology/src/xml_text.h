// SPDX-License-Identifier: Apache-2.0
//
// An XML file of a stranger, parsed. What a hostile one could do by its size, its number of
// elements or its entities is bounded here; how deep elements may be nested is for those who walk
// them.
#pragma once

#include "xylem/base/status.h"

#include <pugixml.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace xylem::topology {

class XmlText {
 public:
  /// `source` names the text in errors, `remedy` says how to make a good one ("export the machine
  /// again with lstopo FILE.xml"). Refers to `text` as long as it lives.
  static Result<std::unique_ptr<XmlText>> parse(std::string_view text,
                                                std::string_view source,
                                                std::string_view remedy);

  pugi::xml_node root() const { return xml_.document_element(); }
  /// An error at `node`: "machine.xml:12: MESSAGE".
  Status error(pugi::xml_node node, const std::string& message) const;
  /// The same place and text, of what can be read although it is wrong.
  std::string remark(pugi::xml_node node, const std::string& message) const;

 private:
  XmlText(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Status load(std::string_view remedy);
  Status refuse_entities() const;
  Status error_at(std::size_t offset, const std::string& message) const;

  std::string_view text_;
  std::string source_;
  pugi::xml_document xml_;
};

}  // namespace xylem::topology
