// SPDX-License-Identifier: Apache-2.0
//
// The protocol between a rank and the store that rank 0 serves, after the handshake. Requests are
// answered in their order. A `get` is answered when the key is set, or at once after `answer_now`;
// until the answer, a rank sends no other request. When the start has failed, the server sends
// every rank the verdict of the start (start_store.h) once, without a request, and nothing after
// it.
//
//   request   u8 kind | u16 key bytes | u32 value bytes | key | value
//   reply     u8 kind | u32 body bytes | u32 rank | body
//
// write_verdict() encodes the body of a `verdict` reply and the value of an `abandon` request.
#pragma once

#include "bootstrap/wire_format.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

enum class StoreAsk : std::uint8_t { set = 1, get, answer_now, abandon, bye };

enum class StoreAnswer : std::uint8_t {
  done = 1,   ///< A value, a welcome, or a plain confirmation.
  timed_out,  ///< The key was not set in time; the body names the missing ranks, `rank` is the
              ///< first of them.
  refused,    ///< The request broke a rule of stores.
  taken,      ///< Another process of this rank has joined this start already.
  verdict,    ///< The start has failed.
};

struct StoreRequest {
  StoreAsk ask = StoreAsk::bye;
  std::string key;
  ByteVector value;
};

struct StoreReply {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  static constexpr std::size_t kHeaderBytes = 9;

  StoreAnswer answer = StoreAnswer::done;
  std::uint32_t rank = kNobody;
  ByteVector body;

  /// The body as an error; OK for `done`.
  Status status() const;
};

void write_request(ByteVector& out, StoreAsk ask, std::string_view key, ByteSpan value);
void write_reply(ByteVector& out, StoreAnswer answer, std::uint32_t rank, ByteSpan body);

/// Reads one request from the front of `bytes` and sets `used` to its size. Returns nothing if the
/// request has not arrived in full, and an error if it breaks the protocol.
Result<std::optional<StoreRequest>> read_request(ByteSpan bytes, std::size_t& used);

/// Reads the header of a reply. Sets the size of the reply's body; the caller must then receive the
/// body.
Result<StoreReply> read_reply_header(ByteSpan bytes);

}  // namespace xylem::runtime
