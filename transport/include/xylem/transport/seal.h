// SPDX-License-Identifier: Apache-2.0
//
// Seal: authenticated encryption of the frames that go one way over one connection. A frame is
// sealed with a number that grows by one, which is the nonce, so a frame that was changed, left
// out, repeated or moved does not open. AES-256-GCM (NIST SP 800-38D) where both ends have the
// instructions for it, else ChaCha20-Poly1305 (RFC 8439).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace xylem::transport {

enum class Cipher : std::uint8_t { aes256_gcm, chacha20_poly1305 };

/// Of one connection and one direction; nobody else has it.
using SealKey = std::array<std::byte, 32>;

/// Whether this processor seals with AES-256-GCM.
bool has_aes() noexcept;

/// One direction of one connection, at one of its ends. One thread at a time.
class Seal {
 public:
  static constexpr std::size_t kTagBytes = 16;

  /// AES-256-GCM only where has_aes().
  Seal(Cipher cipher, const SealKey& key);
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;
  Seal(Seal&&) noexcept;
  Seal& operator=(Seal&&) noexcept;
  ~Seal();

  /// Encrypts `plain` into `sealed`, of as many bytes, which may be the same memory, and writes the
  /// tag that vouches for it and for `clear`, which goes as it is.
  void close(std::span<const std::byte> clear,
             std::span<const std::byte> plain,
             std::byte* sealed,
             std::byte* tag) noexcept;
  /// The other way. False if anything is not as it was sealed; then `plain` holds nothing of it.
  bool open(std::span<const std::byte> clear,
            std::span<const std::byte> sealed,
            std::byte* plain,
            const std::byte* tag) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xylem::transport
