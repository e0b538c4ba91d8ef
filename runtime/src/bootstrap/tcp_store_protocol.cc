// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of the TCP store's requests and replies.
#include "bootstrap/tcp_store_protocol.h"

#include "bootstrap/start_store.h"
#include "bootstrap/store_rules.h"

namespace xylem::runtime {
namespace {

constexpr std::size_t kRequestHeader = 7;

bool is_ask(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(StoreAsk::set) &&
         kind <= static_cast<std::uint8_t>(StoreAsk::bye);
}
bool is_answer(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(StoreAnswer::done) &&
         kind <= static_cast<std::uint8_t>(StoreAnswer::verdict);
}

Code code_of(StoreAnswer answer) {
  switch (answer) {
    case StoreAnswer::done: return Code::ok;
    case StoreAnswer::timed_out: return Code::timed_out;
    case StoreAnswer::refused: return Code::invalid_argument;
    case StoreAnswer::taken: return Code::busy;
    case StoreAnswer::verdict: break;
  }
  return Code::internal;
}

}  // namespace

Status StoreReply::status() const {
  if (answer == StoreAnswer::done) return {};
  if (answer == StoreAnswer::verdict) return read_verdict(body);
  const auto peer = rank == kNobody ? std::nullopt : std::optional(rank);
  return failure(code_of(answer), std::string(text_of(body)), peer);
}

void write_request(ByteVector& out, StoreAsk ask, std::string_view key, ByteSpan value) {
  WireWriter(out)
      .number(static_cast<std::uint8_t>(ask))
      .number(static_cast<std::uint16_t>(key.size()))
      .number(static_cast<std::uint32_t>(value.size()))
      .raw(bytes_of(key))
      .raw(value);
}

void write_reply(ByteVector& out, StoreAnswer answer, std::uint32_t rank, ByteSpan body) {
  WireWriter(out)
      .number(static_cast<std::uint8_t>(answer))
      .number(static_cast<std::uint32_t>(body.size()))
      .number(rank)
      .raw(body);
}

Result<std::optional<StoreRequest>> read_request(ByteSpan bytes, std::size_t& used) {
  used = 0;
  if (bytes.size() < kRequestHeader) return std::optional<StoreRequest>();
  WireReader reader(bytes);
  const auto kind = reader.number<std::uint8_t>();
  const auto key_bytes = reader.number<std::uint16_t>();
  const auto value_bytes = reader.number<std::uint32_t>();
  if (!is_ask(kind) || key_bytes > kLongestKey || value_bytes > kLargestValue) {
    return failure(Code::invalid_argument, "it sent a request that the store's protocol excludes");
  }
  StoreRequest request{
      static_cast<StoreAsk>(kind), std::string(text_of(reader.raw(key_bytes))), {}};
  const ByteSpan value = reader.raw(value_bytes);
  if (!reader.ok()) return std::optional<StoreRequest>();
  request.value.assign(value.begin(), value.end());
  used = kRequestHeader + key_bytes + value_bytes;
  return std::optional(std::move(request));
}

Result<StoreReply> read_reply_header(ByteSpan bytes) {
  WireReader reader(bytes);
  const auto kind = reader.number<std::uint8_t>();
  const auto body_bytes = reader.number<std::uint32_t>();
  StoreReply reply;
  reply.rank = reader.number<std::uint32_t>();
  if (!reader.finished() || !is_answer(kind) || body_bytes > kLargestValue) {
    return failure(Code::internal, "the store sent a reply that its protocol excludes");
  }
  reply.answer = static_cast<StoreAnswer>(kind);
  reply.body.resize(body_bytes);
  return reply;
}

}  // namespace xylem::runtime
