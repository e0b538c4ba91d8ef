// SPDX-License-Identifier: Apache-2.0
//
// WireWriter and WireReader: numbers and text as bytes of a message, little-endian, with lengths in
// front. The reader never reads beyond its span, whatever the bytes contain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace xylem::runtime {

using ByteVector = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

inline ByteSpan bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view text_of(ByteSpan bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Appends to a byte vector.
class WireWriter {
 public:
  explicit WireWriter(ByteVector& out) noexcept : out_(out) {}

  template <typename T>
  requires std::is_unsigned_v<T> WireWriter& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    return *this;
  }
  /// Not inline, since GCC 12 warns of impossible overflows if it knows the sizes.
  WireWriter& raw(ByteSpan bytes);
  /// Appends a length of 16 bits and the text.
  WireWriter& text(std::string_view text) {
    const auto length = static_cast<std::uint16_t>(text.size() < 0xffff ? text.size() : 0xffff);
    return number(length).raw(bytes_of(text.substr(0, length)));
  }

 private:
  ByteVector& out_;
};

/// Reads from the front of a span. After the first missing byte every further value is zero or
/// empty and ok() is false, so that a caller need check ok() only once, after the last value.
class WireReader {
 public:
  explicit WireReader(ByteSpan bytes) noexcept : left_(bytes) {}

  template <typename T>
  requires std::is_unsigned_v<T> T number()
  noexcept {
    T value = 0;
    const ByteSpan bytes = raw(sizeof(T));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[i]) << (8 * i)));
    }
    return value;
  }
  ByteSpan raw(std::size_t size) noexcept {
    if (size > left_.size()) {
      ok_ = false;
      left_ = {};
      return {};
    }
    const ByteSpan taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  std::string_view text() noexcept { return text_of(raw(number<std::uint16_t>())); }
  ByteSpan rest() noexcept { return raw(left_.size()); }

  /// True if no byte was missing so far.
  bool ok() const noexcept { return ok_; }
  /// True if no byte was missing and all bytes have been read.
  bool finished() const noexcept { return ok_ && left_.empty(); }

 private:
  ByteSpan left_;
  bool ok_ = true;
};

}  // namespace xylem::runtime
