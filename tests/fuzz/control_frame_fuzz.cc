// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes, in arbitrary pieces, as the stream of a control connection, a handshake, a card,
// and a request to the store. No reader may read beyond the end of its bytes, and writing an
// accepted frame must produce the same bytes.
#include "bootstrap/bruck_gather.h"
#include "bootstrap/card.h"
#include "bootstrap/control_frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/tcp_store_protocol.h"
#include "xylem/base/check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

using namespace xylem::runtime;

void read_frames(ByteSpan bytes, std::size_t step) {
  FrameReader reader;
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(step, bytes.size()));
    bytes = bytes.subspan(piece.size());
    reader.append(piece);
    for (;;) {
      const auto frame = reader.next();
      if (!frame) return;
      if (!frame->has_value()) break;
      ByteVector written;
      write_frame(written, **frame);
      FrameReader again;
      again.append(written);
      const auto same = again.next();
      XYLEM_CHECK(same.is_ok() && same->has_value() && (*same)->index() == (*frame)->index());
    }
  }
}

void read_requests(ByteSpan bytes) {
  for (;;) {
    std::size_t used = 0;
    const auto request = read_request(bytes, used);
    if (!request || !request->has_value()) return;
    XYLEM_CHECK(used > 0 && used <= bytes.size(), used);
    bytes = bytes.subspan(used);
  }
}

void greet(ByteSpan bytes) {
  Handshake callee(Handshake::Side::callee, Key("secret", "fuzz", {}), {0, 2, {}});
  ByteVector out;
  while (callee.wants() != 0 && bytes.size() >= callee.wants()) {
    const std::size_t wanted = callee.wants();
    if (!callee.receive(bytes.first(wanted), out)) return;
    bytes = bytes.subspan(wanted);
  }
  XYLEM_CHECK(callee.state() != Handshake::State::done);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data + 1, size - 1));
  read_frames(bytes, std::size_t{data[0]} + 1);
  read_requests(bytes);
  greet(bytes);
  static_cast<void>(Card::read(bytes).is_ok());
  BruckGather gather(0, 3, {});
  static_cast<void>(gather.take(bytes).is_ok());
  if (bytes.size() == StoreReply::kHeaderBytes) static_cast<void>(read_reply_header(bytes).is_ok());
  return 0;
}
