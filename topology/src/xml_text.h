// SPDX-License-Identifier: Apache-2.0
//
// An untrusted XML file, parsed. The size and the number of elements are limited here, and entities
// are refused. The code that walks the elements must limit the nesting depth.
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
  /// `source` names the text in errors, and `remedy` says how to make a valid file ("export the
  /// machine again with lstopo FILE.xml"). `text` must outlive the result.
  static Result<std::unique_ptr<XmlText>> parse(std::string_view text,
                                                std::string_view source,
                                                std::string_view remedy);

  pugi::xml_node root() const { return xml_.document_element(); }
  /// An error at `node`: "machine.xml:12: MESSAGE".
  Status error(pugi::xml_node node, const std::string& message) const;
  /// A remark at `node`, in the same form as an error, for a violation that does not prevent
  /// reading the file.
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
