// SPDX-License-Identifier: Apache-2.0
#include "xml_text.h"

#include "xylem/topology/readers.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

/// Limits the memory for the parsed document. A node takes 64 bytes in pugixml, but "<a/>" only
/// four bytes in the text, so elements are counted before parsing.
constexpr std::ptrdiff_t kMaxElements = 2'000'000;

}  // namespace

Result<std::unique_ptr<XmlText>> XmlText::parse(std::string_view text,
                                                std::string_view source,
                                                std::string_view remedy) {
  auto xml = std::unique_ptr<XmlText>(new XmlText(text, source));
  XYLEM_TRY(xml->load(remedy));
  return xml;
}

Status XmlText::load(std::string_view remedy) {
  if (text_.size() > kMaxSourceBytes) {
    return failure(Code::invalid_argument,
                   fmt::format("{}: {} bytes are more than the {} that a topology may have",
                               source_, text_.size(), kMaxSourceBytes));
  }
  if (std::ranges::count(text_, '<') > kMaxElements) {
    return failure(
        Code::invalid_argument,
        fmt::format("{}: more than {} XML elements: not a machine", source_, kMaxElements));
  }
  // The encoding is set explicitly so that pugixml's offsets are offsets into `text_`.
  const auto outcome = xml_.load_buffer(
      text_.data(), text_.size(), pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
  if (!outcome) {
    return error_at(static_cast<std::size_t>(std::max<std::ptrdiff_t>(outcome.offset, 0)),
                    fmt::format("not well-formed XML ({}); {}", outcome.description(), remedy));
  }
  return refuse_entities();
}

/// pugixml does not expand entities, so an entity bomb would do no harm. But topology files have no
/// entities, so a file with entities is not a topology.
Status XmlText::refuse_entities() const {
  for (const pugi::xml_node node : xml_.children()) {
    if (node.type() != pugi::node_doctype) continue;
    if (std::string_view(node.value()).find('[') != std::string_view::npos) {
      return error(
          node,
          "the document type declares entities or elements of its own, which no topology needs");
    }
  }
  return Status::ok();
}

Status XmlText::error(pugi::xml_node node, const std::string& message) const {
  return error_at(static_cast<std::size_t>(std::max<std::ptrdiff_t>(node.offset_debug(), 0)),
                  message);
}

std::string XmlText::remark(pugi::xml_node node, const std::string& message) const {
  return std::string(error(node, message).message());
}

Status XmlText::error_at(std::size_t offset, const std::string& message) const {
  const auto before = text_.substr(0, std::min(offset, text_.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  return failure(Code::invalid_argument, fmt::format("{}:{}: {}", source_, line, message));
}

}  // namespace xylem::topology
