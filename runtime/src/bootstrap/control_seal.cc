// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_seal.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
/// Control messages are few and small, so the cipher that every processor can run is fast enough.
constexpr auto kCipher = transport::Cipher::chacha20_poly1305;

}  // namespace

RecordWriter::RecordWriter(const transport::SealKey& key) : seal_(kCipher, key) {}

void RecordWriter::write(ByteVector& out, ByteSpan plain) {
  while (!plain.empty()) {
    const ByteSpan piece = plain.first(std::min(plain.size(), RecordReader::kLargest));
    plain = plain.subspan(piece.size());
    const std::size_t at = out.size();
    WireWriter(out).number(static_cast<std::uint32_t>(piece.size()));
    out.resize(out.size() + piece.size() + transport::Seal::kTagBytes);
    std::byte* const record = out.data() + at;
    std::byte* const sealed = record + kLengthBytes;
    seal_.close({record, kLengthBytes}, piece, sealed, sealed + piece.size());
  }
}

RecordReader::RecordReader(const transport::SealKey& key) : seal_(kCipher, key) {}

Status RecordReader::read(ByteSpan bytes, ByteVector& plain) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  ByteSpan left(buffer_);
  for (std::size_t before = 0; broken_ && left.size() != before;) {
    before = left.size();
    broken_ = take(left, plain);
  }
  buffer_.erase(buffer_.begin(), buffer_.end() - static_cast<std::ptrdiff_t>(left.size()));
  return broken_;
}

/// Decrypts the first record of `left`, and removes it from `left`, if it has arrived in full.
Status RecordReader::take(ByteSpan& left, ByteVector& plain) {
  if (left.size() < kLengthBytes) return {};
  const auto size = WireReader(left).number<std::uint32_t>();
  if (size > kLargest) {
    return failure(Code::internal,
                   fmt::format("it sent a record of {} bytes, more than {}", size, kLargest));
  }
  const std::size_t whole = kLengthBytes + size + transport::Seal::kTagBytes;
  if (left.size() < whole) return {};
  const std::size_t at = plain.size();
  plain.resize(at + size);
  const ByteSpan sealed = left.subspan(kLengthBytes, size);
  if (!seal_.open(left.first(kLengthBytes), sealed, plain.data() + at,
                  sealed.data() + sealed.size())) {
    plain.resize(at);
    return failure(Code::internal, "what came over its connection is not what it sent");
  }
  left = left.subspan(whole);
  return {};
}

}  // namespace xylem::runtime
