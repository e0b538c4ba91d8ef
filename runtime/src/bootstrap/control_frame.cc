// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding of control frames.
#include "bootstrap/control_frame.h"

#include <fmt/format.h>

namespace xylem::runtime {
namespace {

enum class Kind : std::uint8_t { message = 1, lost, left, failed, gather, invitation };

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
/// Longer texts for people are cut to this number of bytes.
constexpr std::size_t kLongestText = 4096;

struct BodyWriter {
  ByteVector& body;

  Kind operator()(const MessageFrame& frame) const {
    WireWriter(body)
        .number(frame.origin)
        .number(frame.to)
        .number(frame.number)
        .number(frame.topic)
        .raw(frame.bytes);
    return Kind::message;
  }
  Kind operator()(const LostFrame& frame) const {
    WireWriter(body).number(frame.rank).text(frame.how.substr(0, kLongestText));
    return Kind::lost;
  }
  Kind operator()(const LeftFrame& frame) const {
    WireWriter(body).number(frame.rank);
    return Kind::left;
  }
  Kind operator()(const FailedFrame& frame) const {
    WireWriter(body)
        .number(static_cast<std::uint8_t>(frame.code))
        .number(frame.peer.value_or(kNobody))
        .text(frame.message.substr(0, kLongestText));
    return Kind::failed;
  }
  Kind operator()(const GatherFrame& frame) const {
    WireWriter(body)
        .number(frame.gather)
        .number(frame.round)
        .number(static_cast<std::uint8_t>(frame.is_last ? 1 : 0))
        .raw(frame.bytes);
    return Kind::gather;
  }
  Kind operator()(const Invitation& frame) const {
    WireWriter(body)
        .number(frame.inviter)
        .number(frame.invitee)
        .number(frame.number)
        .number(static_cast<std::uint8_t>(frame.is_flooded ? 1 : 0))
        .number(frame.port)
        .text(frame.address.substr(0, kLongestText));
    return Kind::invitation;
  }
};

FailedFrame read_failed(WireReader& reader) {
  FailedFrame frame;
  const auto code = reader.number<std::uint8_t>();
  frame.code = is_error_code(code) ? static_cast<Code>(code) : Code::internal;
  const auto peer = reader.number<std::uint32_t>();
  if (peer != kNobody) frame.peer = peer;
  frame.message = reader.text();
  return frame;
}

std::optional<ControlFrame> read_body(Kind kind, WireReader& reader) {
  switch (kind) {
    case Kind::message: {
      MessageFrame frame;
      frame.origin = reader.number<std::uint32_t>();
      frame.to = reader.number<std::uint32_t>();
      frame.number = reader.number<std::uint32_t>();
      frame.topic = reader.number<std::uint64_t>();
      frame.bytes = reader.rest();
      return frame;
    }
    case Kind::lost: {
      LostFrame frame;
      frame.rank = reader.number<std::uint32_t>();
      frame.how = reader.text();
      return frame;
    }
    case Kind::left: return LeftFrame{reader.number<std::uint32_t>()};
    case Kind::failed: return read_failed(reader);
    case Kind::gather: {
      GatherFrame frame;
      frame.gather = reader.number<std::uint32_t>();
      frame.round = reader.number<std::uint8_t>();
      frame.is_last = reader.number<std::uint8_t>() != 0;
      frame.bytes = reader.rest();
      return frame;
    }
    case Kind::invitation: {
      Invitation frame;
      frame.inviter = reader.number<std::uint32_t>();
      frame.invitee = reader.number<std::uint32_t>();
      frame.number = reader.number<std::uint32_t>();
      frame.is_flooded = reader.number<std::uint8_t>() != 0;
      frame.port = reader.number<std::uint16_t>();
      frame.address = reader.text();
      return frame;
    }
  }
  return std::nullopt;
}

}  // namespace

void write_frame(ByteVector& out, const ControlFrame& frame) {
  ByteVector body;
  const Kind kind = std::visit(BodyWriter{body}, frame);
  WireWriter(out)
      .number(static_cast<std::uint32_t>(body.size()))
      .number(static_cast<std::uint8_t>(kind))
      .raw(body);
}

void FrameReader::append(ByteSpan bytes) {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<ControlFrame>> FrameReader::next() {
  const ByteSpan unread = ByteSpan(buffer_).subspan(at_);
  if (unread.size() < kHeaderBytes) return std::optional<ControlFrame>();
  WireReader header(unread.first(kHeaderBytes));
  const auto body_bytes = header.number<std::uint32_t>();
  const auto kind = header.number<std::uint8_t>();
  if (body_bytes > kLargestBody) {
    return failure(Code::internal, fmt::format("it sent a frame of {} bytes, more than {}",
                                               body_bytes, kLargestBody));
  }
  if (unread.size() < kHeaderBytes + body_bytes) return std::optional<ControlFrame>();

  WireReader body(unread.subspan(kHeaderBytes, body_bytes));
  auto frame = read_body(static_cast<Kind>(kind), body);
  if (!frame || !body.finished()) {
    return failure(
        Code::internal,
        fmt::format("it sent a frame of kind {} and {} bytes, which is none", kind, body_bytes));
  }
  at_ += kHeaderBytes + body_bytes;
  return frame;
}

}  // namespace xylem::runtime
