// SPDX-License-Identifier: Apache-2.0
//
// The text form of a NodeRef: the name of its kind and its index.
#include "enum_names.h"
#include "text.h"
#include "xylem/topology/link.h"

#include <fmt/format.h>

namespace xylem::topology {

Result<NodeRef> NodeRef::parse(std::string_view text) {
  const auto digits = text.find_first_of("0123456789");
  if (digits != std::string_view::npos) {
    const auto kind = enumerator_of<NodeKind>(text.substr(0, digits));
    const auto index = parse_number<std::uint32_t>(text.substr(digits));
    if (kind && index) return NodeRef{*kind, *index};
  }
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" names no node (a kind and an index, such as gpu0 or bridge12)",
                             excerpt(text)));
}

std::string NodeRef::to_string() const { return fmt::format("{}{}", name_of(kind), index); }

}  // namespace xylem::topology
