// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of the reason why a start has failed.
#include "bootstrap/start_store.h"

#include <optional>
#include <string>

namespace xylem::runtime {
namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr std::size_t kLongestText = 4096;

}  // namespace

Result<ByteVector> StartStore::set_and_get(std::string_view key,
                                           ByteSpan value,
                                           std::string_view wanted,
                                           Deadline deadline) {
  XYLEM_TRY(set(key, value));
  return get(wanted, deadline);
}

ByteVector write_verdict(const Status& why) {
  ByteVector bytes;
  WireWriter(bytes)
      .number(static_cast<std::uint8_t>(why.code()))
      .number(why.peer().value_or(kNobody))
      .raw(bytes_of(why.message().substr(0, kLongestText)));
  return bytes;
}

Status read_verdict(ByteSpan bytes) {
  WireReader reader(bytes);
  const auto code = reader.number<std::uint8_t>();
  const auto rank = reader.number<std::uint32_t>();
  const bool is_known = reader.ok() && is_error_code(code);
  if (!is_known) return failure(Code::internal, "the start has failed, and not said why");
  const std::string_view text = text_of(reader.rest());
  return failure(static_cast<Code>(code), std::string(text),
                 rank == kNobody ? std::nullopt : std::optional(rank));
}

}  // namespace xylem::runtime
