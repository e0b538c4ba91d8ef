// SPDX-License-Identifier: Apache-2.0
//
// Seal: authenticated encryption of the frames that travel in one direction over one connection.
// Frames are numbered from 0, and the number is the nonce. So open() fails for a frame that was
// changed, repeated or reordered, or if an earlier frame is missing. The cipher is AES-256-GCM
// (NIST SP 800-38D) if the processors of both ends have instructions for it, and ChaCha20-Poly1305
// (RFC 8439) otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace xylem::transport {

enum class Cipher : std::uint8_t { aes256_gcm, chacha20_poly1305 };

/// The secret key of one direction of one connection. Only the two ends of the connection have it.
using SealKey = std::array<std::byte, 32>;

/// Whether this processor has the instructions that AES-256-GCM needs here.
bool has_aes() noexcept;

/// The sender's or the receiver's state for one direction of a connection. Not thread-safe.
class Seal {
 public:
  static constexpr std::size_t kTagBytes = 16;

  /// Starts with frame number 0. Cipher::aes256_gcm requires has_aes().
  Seal(Cipher cipher, const SealKey& key);
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;
  Seal(Seal&&) noexcept;
  Seal& operator=(Seal&&) noexcept;
  ~Seal();

  /// Encrypts `plain` to `sealed`, which has the same size and may be the same memory. Writes
  /// kTagBytes to `tag`, which authenticates the ciphertext and also `clear`. `clear` is not
  /// encrypted.
  void close(std::span<const std::byte> clear,
             std::span<const std::byte> plain,
             std::byte* sealed,
             std::byte* tag) noexcept;
  /// Verifies and decrypts a frame that close() has sealed at the other end. False if any of its
  /// bytes differ; `plain` then contains no decrypted bytes.
  bool open(std::span<const std::byte> clear,
            std::span<const std::byte> sealed,
            std::byte* plain,
            const std::byte* tag) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xylem::transport
