// SPDX-License-Identifier: Apache-2.0
//
// What a rank and the store that rank 0 serves say to each other once the handshake is done. A rank
// asks one thing at a time; `get` is answered when the key is set, or at once after `answer_now`.
// When the start has failed, every rank gets the verdict once, asked or not, and nothing after it.
//
//   request   u8 kind | u16 key bytes | u32 value bytes | key | value
//   reply     u8 kind | u32 body bytes | u32 rank | body
//
// The body of a verdict, and the value of a give_up, are what write_verdict() makes of it.
#pragma once

#include "bootstrap/wire.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::runtime {

enum class StoreAsk : std::uint8_t { set = 1, get, answer_now, give_up, bye };

enum class StoreAnswer : std::uint8_t {
  done = 1,   ///< A value, a welcome, or nothing more to say.
  timed_out,  ///< Not set in time; the body says who is missing, `rank` the first of them.
  refused,    ///< The request broke a rule of stores.
  taken,      ///< A process of this rank has come to this start already.
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

  /// The body as an error, ok for `done`.
  Status status() const;
};

void write_request(ByteVector& out, StoreAsk ask, std::string_view key, ByteSpan value);
void write_reply(ByteVector& out, StoreAnswer answer, std::uint32_t rank, ByteSpan body);

/// Takes one request from the front of `bytes` and says how many bytes it had in `used`; nothing if
/// it is not whole yet, an error if it breaks the rules.
Result<std::optional<StoreRequest>> read_request(ByteSpan bytes, std::size_t& used);

/// The header of a reply: its body is still to come, and already has its size.
Result<StoreReply> read_reply_header(ByteSpan bytes);

}  // namespace xylem::runtime
